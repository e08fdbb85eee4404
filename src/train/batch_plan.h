// How the global batch is cut into micro-batches. Torch-free arithmetic.
#pragma once

#include <cstdint>
#include <vector>

#include "config/config.h"

namespace tessera {

struct BatchPlan {
  std::int64_t global_rows = 0;    // sequences of one optimizer step, over all ranks
  std::int64_t micro_rows = 0;     // at most so many in one micro-batch of one rank
  std::int64_t micro_batches = 0;  // of one rank in a full step (gradient accumulation)
};

// From train.global_batch_size, train.batch_size and train.gradient_accumulation, whichever are
// given; given all three, they must agree: Error{kConfig}. recorded_global_rows: the global batch
// of the run that is resumed, 0 for none; another one is refused.
BatchPlan plan_batches(const TrainConfig& config, std::int64_t world_size,
                       std::int64_t recorded_global_rows);

// Rows [begin, end) of a batch.
struct RowRange {
  std::int64_t begin = 0, end = 0;
  std::int64_t count() const { return end - begin; }
  bool operator==(const RowRange&) const = default;
};

// How many micro-batches of at most micro_rows each rank needs for `rows` sequences of all ranks;
// at least one.
std::int64_t micro_batches_for(std::int64_t rows, std::int64_t micro_rows, std::int64_t world_size);

// The rows of each of one rank's `parts` micro-batches: contiguous, and over all ranks and
// micro-batches every row once. Sizes differ by one at most; some have no rows where there are
// fewer rows than ranks or parts.
std::vector<RowRange> split_rows(std::int64_t rows, std::int64_t parts, std::int64_t rank,
                                 std::int64_t world_size);

}  // namespace tessera
