// Memory for keys and values of past positions. Owns: allocation, growth and the choice of rows of
// a KvCache (unit/batch_context.h). Not: what is written into it (the units), positions and masks
// (decoder.h).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "unit/batch_context.h"

namespace tessera {

struct KvCacheShape {
  std::int64_t layers = 0, heads = 0, head_size = 0;
  at::ScalarType dtype = at::kFloat;
  at::Device device = at::kCPU;
};

// Capacity is a multiple of this many positions.
inline constexpr std::int64_t kKvCacheBlock = 64;

// Makes room for `positions` positions of `rows` rows; what is filled stays. Grows by at least a
// half, so a long generation copies each position a few times at most.
void reserve(KvCache& cache, const KvCacheShape& shape, std::int64_t rows, std::int64_t positions);

// Keeps the given rows, in this order, a row as often as it is named, and drops the first
// `first_column` positions of all.
void select_rows(KvCache& cache, const std::vector<std::int64_t>& rows, std::int64_t first_column);

std::int64_t capacity(const KvCache& cache);  // positions; 0 when nothing is allocated
std::int64_t bytes(const KvCache& cache);

}  // namespace tessera
