// Attention with dropout on its probabilities. The fused kernels of torch draw masks of their own;
// these are keyed (ops/dropout.h), and made again in backward, so that no (B, H, T, S) matrix is
// kept.
#pragma once

#include <ATen/core/Tensor.h>

#include "ops/dropout.h"

namespace tessera {

// query: (B, H, T, D); key, value: (B, H, S, D); may_attend: bool, broadcasts to (B, H, T, S), each
// row with at least one true. softmax(query · keyᵀ / sqrt(D)) in f32, dropout with probability p,
// times value. Row b of the batch is the row of `dropout_key`. Differentiable in query, key and
// value.
at::Tensor attention_with_dropout(const at::Tensor& query, const at::Tensor& key,
                                  const at::Tensor& value, const at::Tensor& may_attend, double p,
                                  const DropoutKey& dropout_key);

}  // namespace tessera
