// What the sampler hands to training: rows of token ids with their targets, and the position that
// follows. Owns: plain values. Not: tensors (train/ wraps the rows of a rank).
#pragma once

#include <cstdint>
#include <vector>

namespace tessera {

// A label that is no target; the value that PyTorch's cross entropy ignores.
inline constexpr std::int64_t kNoTarget = -100;

// Where in the data a run stands: everything that a checkpoint has to remember. `offset` counts the
// sequences drawn so far in this epoch (sampling by epochs), or all draws (random windows; `epoch`
// stays 0 there). It counts sequences and not batches, so that a run may go on with another global
// batch.
struct SamplerPosition {
  std::uint64_t seed = 0;
  std::int64_t epoch = 0;
  std::int64_t offset = 0;
  bool operator==(const SamplerPosition&) const = default;
};

// The sequences of one optimizer step, of all ranks together. Row r is ids[r * block_size …]; its
// labels are the same window shifted by one: labels[t] is the token that follows ids[t].
// Positions of a padded last block have id 0 and label kNoTarget, always at the end of a row.
struct GlobalBatch {
  std::int64_t rows = 0;
  std::int64_t block_size = 0;
  std::vector<std::int64_t> ids;     // (rows, block_size) row-major
  std::vector<std::int64_t> labels;  // (rows, block_size) row-major
  std::int64_t targets = 0;          // labels that are not kNoTarget
  // The number of this batch's first row in the order of the run, the same at any rank count and
  // never used twice in a run: a key for random numbers that belong to a row (dropout).
  std::int64_t first_row = 0;
  SamplerPosition position_after;
};

}  // namespace tessera
