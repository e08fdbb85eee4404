// Which tokens make which batch. Owns: the order of sequences, a pure function of (seed, step).
// Not: threads (batch_stream.h), ranks (train/ gives each its rows).
#pragma once

#include <cstdint>
#include <memory>

#include "config/config.h"
#include "data/batch.h"
#include "data/dataset.h"

namespace tessera {

enum class LastBatch { kDrop, kKeep };  // fewer sequences than rows at the end of an epoch

struct SamplerOptions {
  // epochs: every block once an epoch; windows: block_size + 1 tokens from anywhere, again and
  // again
  Sampling mode = Sampling::kEpochs;
  std::int64_t block_size = 0;  // tokens that the model sees; a window has one more
  std::int64_t stride = 0;  // epochs: between the starts of blocks; 0: block_size, 1: every window
  LastBlock last_block = LastBlock::kDrop;
  LastBatch last_batch = LastBatch::kDrop;
  bool shuffle = true;  // epochs: a new random order each epoch; false: as the text goes
};

SamplerOptions sampler_options(const DataConfig& config);

// Immutable; may be used from several threads at once.
//   windows: draw i starts at floor(x * (size - block_size) / 2^64), x = philox_bits(seed, a fixed
//            stream, i) (base/philox.h).
//   epochs:  sequence k of epoch e is block P(k), P = a bijection of [0, sequences()) keyed by
//            (seed, e) (permutation.h): no list is kept, so stride 1 over any corpus costs nothing.
class Sampler {
 public:
  // Error{kData} where the corpus holds no window of block_size + 1 tokens (with LastBlock::kKeep:
  // not two tokens); Error{kConfig} for a block size or stride below 1.
  Sampler(std::shared_ptr<const TokenDataset> dataset, SamplerOptions options);

  std::int64_t block_size() const { return options_.block_size; }
  // Sequences of one epoch. For windows: as many draws as blocks fit into the corpus, at least 1.
  std::int64_t sequences() const { return sequences_; }
  // Batches of one epoch. Error{kData} where LastBatch::kDrop leaves none.
  std::int64_t steps_per_epoch(std::int64_t rows) const;
  // Epochs done, with their fraction.
  double epochs_done(const SamplerPosition& position) const;
  // The position before global step `step` (0-based) of a run that began at {seed, 0, 0} and has
  // had `rows` rows a step all along.
  SamplerPosition position_at(std::uint64_t seed, std::int64_t step, std::int64_t rows) const;

  // The next `rows` sequences after `position` (fewer only at the end of an epoch with
  // LastBatch::kKeep); a batch never joins two epochs. The memory of `batch` is used again.
  void fill(const SamplerPosition& position, std::int64_t rows, GlobalBatch& batch) const;
  GlobalBatch next(const SamplerPosition& position, std::int64_t rows) const;

 private:
  std::int64_t start_of(std::uint64_t seed, std::int64_t epoch, std::int64_t index) const;

  std::shared_ptr<const TokenDataset> dataset_;
  SamplerOptions options_;
  std::int64_t starts_ = 0;     // windows: how many starts there are
  std::int64_t sequences_ = 0;  // epochs: blocks
};

// The fixed order of an evaluation: block k shows the ids from k * stride on, and its targets are
// those of its window that no earlier block had. So every token but the very first is a target
// exactly once, with at least block_size - stride tokens before it (from the second block on); the
// last block is padded; and the same batches come each time.
class EvaluationOrder {
 public:
  // max_batches: only the first ones, 0 = all. stride: 0 = block_size; 1 gives every token the
  // longest context there is. Error{kData} for fewer than two tokens.
  EvaluationOrder(std::shared_ptr<const TokenDataset> dataset, std::int64_t block_size,
                  std::int64_t rows, std::int64_t max_batches = 0, std::int64_t stride = 0);

  std::int64_t batches() const { return batches_; }
  std::int64_t targets() const;  // of all batches() together: the tokens 1 to targets()
  // Index in [0, batches()); the last batch of all may have fewer rows.
  void fill(std::int64_t index, GlobalBatch& batch) const;
  GlobalBatch batch(std::int64_t index) const;

 private:
  std::shared_ptr<const TokenDataset> dataset_;
  std::int64_t block_size_, rows_, stride_, blocks_ = 0, batches_ = 0;
};

}  // namespace tessera
