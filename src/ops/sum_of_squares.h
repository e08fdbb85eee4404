// The part of a gradient norm that one buffer contributes.
#pragma once

#include <ATen/core/Tensor.h>

namespace tessera {

// Σ x² of a contiguous f32 tensor. Summed in f32 within blocks of 4,096 and in f64 over them, in a
// fixed order: the same bits at any thread count. Not finite if an element is not (or overflows).
double sum_of_squares(const at::Tensor& x);

}  // namespace tessera
