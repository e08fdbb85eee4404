// Normal draws for initial weights: each value depends on (seed, name, index) only.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string_view>

namespace tessera {

// Fills a contiguous f32 CPU tensor with N(0, std²), by Philox and the Box–Muller transform. The
// same values at any thread count. `first`: the index of tensor[0], where the tensor is a part of
// what `name` names.
void fill_normal(at::Tensor& tensor, double std, std::uint64_t seed, std::string_view name,
                 std::int64_t first = 0);

}  // namespace tessera
