// Dropout whose mask is a pure function of (seed, step, site, global row, element): equal at any
// rank count, accumulation, thread count, recomputation and device, and never stored.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace tessera {

struct DropoutKey {
  std::uint64_t seed = 0;
  std::int64_t step = 0;
  std::uint32_t site = 0;      // unit and place in it: unit index · 8 + place
  std::int64_t first_row = 0;  // global number of x[0] along the first dimension
};

// x: (rows, …), any floating type, at most 2^34 elements a row. Kept elements are scaled by 1 / (1
// - p); p in [0, 1). Differentiable; backward makes the mask again. p = 0 returns x itself.
at::Tensor keyed_dropout(const at::Tensor& x, double p, const DropoutKey& key);

// The same mask by tensor operations alone, on any device: 1 where kept. For devices without a
// kernel of ours, and as the kernel's reference in tests. Shape and type as `like`.
at::Tensor dropout_mask_by_tensor_operations(const at::Tensor& like, double p,
                                             const DropoutKey& key);

}  // namespace tessera
