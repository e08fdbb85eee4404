// Matrix products whose weight gradients go straight into the flat gradient buffer: neither a
// matrix of the weight's size nor a zero-fill nor a second addition.
#pragma once

#include <ATen/core/Tensor.h>

namespace tessera {

// x (N, in) · weight (in, out) + bias (out) -> (N, out); Hugging Face's Conv1D. All of one type.
// Differentiable. Gradients of weight and bias are added into their .grad() during backward if that
// is defined (f32, any computing type), so backward must run once for each forward; otherwise they
// are given to autograd as usual.
at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

// linear(gelu(x), weight, bias) with the tanh form of GELU, which backward computes again instead
// of keeping it.
at::Tensor gelu_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

// linear(layer_norm(x), weight, bias): backward computes the norm's result again instead of keeping
// it. The same bits as at::layer_norm followed by linear(). norm_weight and norm_bias: (in).
at::Tensor norm_linear(const at::Tensor& x, const at::Tensor& norm_weight,
                       const at::Tensor& norm_bias, double epsilon, const at::Tensor& weight,
                       const at::Tensor& bias);

// Rows of weight (V, C) for ids (…, int64) -> (…, C). The gradient of weight goes the same way:
// rows are added to weight.grad() in the order of ids, which is the same at any thread count.
at::Tensor embed(const at::Tensor& weight, const at::Tensor& ids);

}  // namespace tessera
