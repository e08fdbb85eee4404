// Rows of token ids as the micro-batches that units see.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "data/batch.h"
#include "train/batch_plan.h"
#include "unit/batch_context.h"

namespace tessera {

// One micro-batch of each range of the batch's rows (split_rows()), copied to the device. `seed`
// and `step` key the dropout; the row key is the batch's own number of the row.
std::vector<BatchContext> make_micro_batches(const GlobalBatch& batch,
                                             const std::vector<RowRange>& ranges,
                                             const at::Device& device, Mode mode,
                                             std::uint64_t seed, std::int64_t step);

}  // namespace tessera
