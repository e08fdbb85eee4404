// train.auto_batch and train.auto_block_size: the largest that fits into this rank's memory. Owns:
// the budget, and the probe that corrects the prediction. Not: the prediction (memory_plan.h).
#pragma once

#include <cstdint>

#include "base/log.h"
#include "train/session.h"

namespace tessera {

// Bytes that tensors of this rank may take: nine tenths of what is free, divided among the ranks of
// a host on a CPU.
std::int64_t tensor_budget(const at::Device& device, int ranks_of_host);

// One step of this rank on a micro-batch of one row, with the others only pretended: bytes by which
// it takes more than predicted. 0 where it takes less.
std::int64_t probe_step(const RunPlan& plan, MemoryInputs inputs);

// The largest train.batch_size, or data.block_size, within `budget` once the probe's excess is
// taken off. Error{kResource} with remedies where not even the least fits.
std::int64_t fitting_rows(const MemoryInputs& inputs, std::int64_t most, std::int64_t budget);
std::int64_t fitting_block(const MemoryInputs& inputs, std::int64_t budget);

}  // namespace tessera
