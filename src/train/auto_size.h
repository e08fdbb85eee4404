// train.auto_batch and train.auto_block_size: the largest that fits into this rank's memory. Owns:
// the budget, the choice, and the probe that corrects the prediction. Not: the prediction
// (memory_plan.h).
#pragma once

#include <cstdint>

#include "base/log.h"
#include "config/config.h"
#include "train/session.h"

namespace tessera {

// Bytes that tensors of this rank may take: nine tenths of what is free, divided among the ranks of
// a host on a CPU.
std::int64_t tensor_budget(const at::Device& device, int ranks_of_host);

// Rounds down to one of 1 2 3 4 5 6 7 8 10 12 14 16 20 24 28 32 …: a start that finds a little less
// memory free than the one before takes the same size.
std::int64_t round_size(std::int64_t size);

struct SizeQuestion {
  MemoryInputs inputs;  // micro_rows and block_size count where they are not looked for
  TrainConfig train;    // auto_batch: find rows
  bool find_block = false;
  std::int64_t text_tokens = 0;  // of the training data
};

enum class RowsBound { kMemory, kData, kGlobalBatch };

struct SizeAnswer {
  MemoryInputs inputs;  // of the question, with the sizes that were found
  RowsBound rows_bound = RowsBound::kMemory;
};

// By prediction alone. A block is at most the model's context. Rows are at most the rank's part of
// train.global_batch_size; without one, as many as let a step of all ranks take a hundredth of the
// training data. Error{kResource} with the key and remedies where not even the least fits.
SizeAnswer choose_sizes(const SizeQuestion& question, std::int64_t budget);

// Sets plan.batches and returns the block size: those that the config gives, the resumed run's own,
// or those that fit into `budget` bytes (of the poorest rank). Predicts first; then, unless this is
// a dry run, runs a step of what is predicted to fit and takes its excess off the budget. Says what
// it took and why. Error{kResource} as choose_sizes(), before anything is allocated.
std::int64_t find_sizes(RunPlan& plan, Ranks& ranks, const RecordedSizes& recorded,
                        std::int64_t budget, std::int64_t block_size, Log& log);

}  // namespace tessera
