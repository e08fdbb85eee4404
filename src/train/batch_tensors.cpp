#include "train/batch_tensors.h"

#include <ATen/ops/from_blob.h>

#include <utility>

namespace tessera {

std::vector<BatchContext> make_micro_batches(const GlobalBatch& batch,
                                             const std::vector<RowRange>& ranges,
                                             const at::Device& device, Mode mode,
                                             std::uint64_t seed, std::int64_t step) {
  std::vector<BatchContext> micro_batches;
  for (const RowRange& range : ranges) {
    const auto to_tensor = [&](const std::vector<std::int64_t>& values) {
      const std::int64_t* data = values.data() + range.begin * batch.block_size;
      // from_blob's memory is lent: clone() or the copy to the device ends that.
      const at::Tensor lent = at::from_blob(const_cast<std::int64_t*>(data),
                                            {range.count(), batch.block_size}, at::kLong);
      return device.is_cpu() ? lent.clone() : lent.to(device);
    };
    BatchContext context;
    context.ids = to_tensor(batch.ids);
    context.labels = to_tensor(batch.labels);
    context.random = {.seed = seed, .step = step, .first_row = batch.first_row + range.begin};
    context.mode = mode;
    micro_batches.push_back(std::move(context));
  }
  return micro_batches;
}

}  // namespace tessera
