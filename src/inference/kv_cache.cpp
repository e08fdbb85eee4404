#include "inference/kv_cache.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include <algorithm>

namespace tessera {

namespace {

std::int64_t rounded_up(std::int64_t positions) {
  return (positions + kKvCacheBlock - 1) / kKvCacheBlock * kKvCacheBlock;
}

}  // namespace

void reserve(KvCache& cache, const KvCacheShape& shape, std::int64_t rows, std::int64_t positions) {
  const std::int64_t old_capacity = capacity(cache);
  if (positions <= old_capacity) return;
  const std::int64_t grown = rounded_up(std::max(positions, old_capacity + old_capacity / 2));
  const auto options = at::TensorOptions().dtype(shape.dtype).device(shape.device);
  cache.slots.resize(static_cast<std::size_t>(shape.layers));
  for (KvCache::Slot& slot : cache.slots) {
    for (at::Tensor* tensor : {&slot.key, &slot.value}) {
      at::Tensor larger = at::empty({rows, shape.heads, grown, shape.head_size}, options);
      if (cache.length > 0) {
        larger.narrow(2, 0, cache.length).copy_(tensor->narrow(2, 0, cache.length));
      }
      *tensor = std::move(larger);
    }
  }
}

void select_rows(KvCache& cache, const std::vector<std::int64_t>& rows, std::int64_t first_column) {
  const std::int64_t length = cache.length - first_column;
  for (KvCache::Slot& slot : cache.slots) {
    const at::Tensor index = at::tensor(rows, at::kLong).to(slot.key.device());
    for (at::Tensor* tensor : {&slot.key, &slot.value}) {
      const at::Tensor kept =
          tensor->narrow(2, first_column, length).index_select(0, index);  // (B', H, length, D)
      at::Tensor moved =
          at::empty({kept.size(0), kept.size(1), rounded_up(length), kept.size(3)}, kept.options());
      moved.narrow(2, 0, length).copy_(kept);
      *tensor = std::move(moved);
    }
  }
  cache.length = length;
}

std::int64_t capacity(const KvCache& cache) {
  return cache.slots.empty() ? 0 : cache.slots.front().key.size(2);
}

std::int64_t bytes(const KvCache& cache) {
  std::int64_t sum = 0;
  for (const KvCache::Slot& slot : cache.slots) {
    sum += static_cast<std::int64_t>(slot.key.nbytes() + slot.value.nbytes());
  }
  return sum;
}

}  // namespace tessera
