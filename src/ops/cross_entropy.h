// The projection to the vocabulary and the cross entropy in one operation, a chunk of rows at a
// time, so that the logits of a whole batch never exist; the gradient is made in the same pass.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace tessera {

struct CrossEntropyOptions {
  std::int64_t vocab_size =
      0;  // rows of the projection that are tokens; the rest is padding and never predicted
  double gradient_scale = 1.0;  // multiplies the gradients, not the loss
  bool count_correct = false;
  std::int64_t chunk_bytes = 128 << 20;  // of f32 logits that may exist at once
};

// How many rows' logits exist at once, of `rows`: chunks of one size, as large as the limit allows.
std::int64_t cross_entropy_chunk(std::int64_t rows, const CrossEntropyOptions& options);

struct CrossEntropySum {
  at::Tensor loss;     // f32 scalar: sum of weight × cross entropy over the targets
  at::Tensor correct;  // f32 scalar: weight of targets whose logit is the greatest; undefined
                       // unless asked for
};

// hidden: (N, C); projection: (V, C), same type; labels: (N) int64, -100 where there is no target;
// weights: (N) f32 or undefined (1). The softmax is taken in f32. With gradients enabled, and
// `hidden` or `projection` requiring them: backward of `loss` by 1 gives hidden's gradient. The
// projection's is added here, during forward, straight into projection.grad(), which must then be
// defined (f32): the flat gradient buffer, so that a matrix of V × C is neither allocated nor added
// a second time.
CrossEntropySum projection_cross_entropy(const at::Tensor& hidden, const at::Tensor& projection,
                                         const at::Tensor& labels, const at::Tensor& weights,
                                         const CrossEntropyOptions& options);

}  // namespace tessera
