#include "data/sampler.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/philox.h"
#include "data/permutation.h"

namespace tessera {
namespace {

constexpr std::uint64_t kWindowStream = 0x77696e646f777300;  // apart from shuffles and dropout

void prepare_batch(GlobalBatch& batch, std::int64_t rows, std::int64_t block_size) {
  const auto elements = static_cast<std::size_t>(rows * block_size);
  batch.rows = rows;
  batch.block_size = block_size;
  batch.targets = 0;
  batch.ids.resize(elements);
  batch.labels.resize(elements);
}

// Row `row` from the tokens at `start` on. Targets are the tokens [first_target, …) that lie in the
// window and in the data; what is beyond the data is padded.
void fill_row(const TokenDataset& data, std::int64_t start, std::int64_t first_target,
              std::int64_t row, GlobalBatch& batch) {
  const std::int64_t block = batch.block_size;
  std::int64_t* ids = batch.ids.data() + row * block;
  std::int64_t* labels = batch.labels.data() + row * block;
  const std::int64_t inputs = std::min(block, data.size() - 1 - start);
  data.read(start, inputs, ids);
  data.read(start + 1, inputs, labels);
  const std::int64_t skipped = std::clamp<std::int64_t>(first_target - start - 1, 0, inputs);
  std::fill(labels, labels + skipped, kNoTarget);
  std::fill(ids + inputs, ids + block, 0);
  std::fill(labels + inputs, labels + block, kNoTarget);
  batch.targets += inputs - skipped;
}

std::int64_t ceil_divide(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

[[noreturn]] void too_small(const TokenDataset& data, std::int64_t needed, const char* what) {
  throw Error(ErrorKind::kData,
              "the data has " + std::to_string(data.size()) + " tokens, " + what + " needs " +
                  std::to_string(needed),
              data.name(), "Give more text, or lower data.block_size.");
}

void check_rows(std::int64_t rows) {
  if (rows < 1) throw Error(ErrorKind::kConfig, "a batch needs at least one row");
}

}  // namespace

SamplerOptions sampler_options(const DataConfig& config) {
  return {.mode = config.sampling,
          .block_size = config.block_size,
          .stride = config.stride,
          .last_block = config.last_block,
          .last_batch = config.drop_last_batch ? LastBatch::kDrop : LastBatch::kKeep,
          .shuffle = config.shuffle};
}

Sampler::Sampler(std::shared_ptr<const TokenDataset> dataset, SamplerOptions options)
    : dataset_(std::move(dataset)), options_(options) {
  const std::int64_t block = options_.block_size, size = dataset_->size();
  if (options_.stride == 0) options_.stride = block;
  if (block < 1) throw Error(ErrorKind::kConfig, "data.block_size must be at least 1");
  if (options_.stride < 1) throw Error(ErrorKind::kConfig, "data.stride must be at least 1");
  starts_ = std::max<std::int64_t>(0, size - block);
  if (options_.mode == Sampling::kWindows) {
    if (starts_ == 0) too_small(*dataset_, block + 1, "a window of block_size + 1 tokens");
    sequences_ = std::max<std::int64_t>(1, (size - 1) / block);
    return;
  }
  sequences_ = ceil_divide(starts_, options_.stride);
  if (options_.last_block == LastBlock::kKeep) {
    // Targets up to here are in full blocks; the padded one starts a stride later.
    const std::int64_t covered = sequences_ == 0 ? 0 : (sequences_ - 1) * options_.stride + block;
    const std::int64_t start = sequences_ * options_.stride;
    if (covered < size - 1 && start < size - 1) ++sequences_;
    if (sequences_ == 0) too_small(*dataset_, 2, "one target");
  }
  if (sequences_ == 0) too_small(*dataset_, block + 1, "a block of block_size + 1 tokens");
}

std::int64_t Sampler::steps_per_epoch(std::int64_t rows) const {
  check_rows(rows);
  if (options_.mode == Sampling::kWindows) return std::max<std::int64_t>(1, sequences_ / rows);
  if (options_.last_batch == LastBatch::kKeep) return ceil_divide(sequences_, rows);
  if (rows > sequences_) {
    throw Error(ErrorKind::kData,
                "a global batch of " + std::to_string(rows) + " sequences is larger than the " +
                    std::to_string(sequences_) + " sequences of an epoch",
                dataset_->name(),
                "Give more text, lower train.global_batch_size (or train.batch_size and "
                "train.gradient_accumulation), set data.drop_last_batch=false, or use "
                "data.sampling=windows.");
  }
  return sequences_ / rows;
}

double Sampler::epochs_done(const SamplerPosition& position) const {
  return static_cast<double>(position.epoch) +
         static_cast<double>(position.offset) / static_cast<double>(sequences_);
}

SamplerPosition Sampler::position_at(std::uint64_t seed, std::int64_t step,
                                     std::int64_t rows) const {
  if (options_.mode == Sampling::kWindows) return {seed, 0, step * rows};
  const std::int64_t steps = steps_per_epoch(rows);
  return {seed, step / steps, step % steps * rows};
}

std::int64_t Sampler::start_of(std::uint64_t seed, std::int64_t epoch, std::int64_t index) const {
  const auto draw = static_cast<std::uint64_t>(index);
  const std::uint64_t bits =
      philox_bits(seed, kWindowStream + static_cast<std::uint64_t>(epoch), draw);
  return static_cast<std::int64_t>(scale_to(bits, static_cast<std::uint64_t>(starts_)));
}

void Sampler::fill(const SamplerPosition& position, std::int64_t rows, GlobalBatch& batch) const {
  check_rows(rows);
  if (position.epoch < 0 || position.offset < 0) {
    throw Error(ErrorKind::kCorrupt, "a position in the data cannot be negative");
  }
  SamplerPosition at = position;
  if (options_.mode == Sampling::kWindows) {
    prepare_batch(batch, rows, options_.block_size);
    for (std::int64_t row = 0; row < rows; ++row) {
      fill_row(*dataset_, start_of(at.seed, at.epoch, at.offset + row), 0, row, batch);
    }
    batch.first_row = at.offset;
    batch.position_after = {at.seed, at.epoch, at.offset + rows};
    return;
  }
  steps_per_epoch(rows);  // throws where an epoch has no batch at all
  const std::int64_t least = options_.last_batch == LastBatch::kDrop ? rows : 1;
  if (sequences_ - at.offset < least) at = {at.seed, at.epoch + 1, 0};
  prepare_batch(batch, std::min(rows, sequences_ - at.offset), options_.block_size);
  const Permutation permute(static_cast<std::uint64_t>(sequences_), at.seed,
                            static_cast<std::uint64_t>(at.epoch));
  for (std::int64_t row = 0; row < batch.rows; ++row) {
    std::int64_t block = at.offset + row;
    if (options_.shuffle) {
      block = static_cast<std::int64_t>(permute(static_cast<std::uint64_t>(block)));
    }
    fill_row(*dataset_, block * options_.stride, 0, row, batch);
  }
  batch.first_row = at.epoch * sequences_ + at.offset;
  at.offset += batch.rows;
  // The epoch ends with its last batch, not with the first of the next, so that a checkpoint made
  // in between says what was done.
  if (sequences_ - at.offset < least) at = {at.seed, at.epoch + 1, 0};
  batch.position_after = at;
}

GlobalBatch Sampler::next(const SamplerPosition& position, std::int64_t rows) const {
  GlobalBatch batch;
  fill(position, rows, batch);
  return batch;
}

EvaluationOrder::EvaluationOrder(std::shared_ptr<const TokenDataset> dataset,
                                 std::int64_t block_size, std::int64_t rows,
                                 std::int64_t max_batches, std::int64_t stride)
    : dataset_(std::move(dataset)),
      block_size_(block_size),
      rows_(rows),
      stride_(stride == 0 ? block_size : stride) {
  check_rows(rows);
  if (block_size < 1) throw Error(ErrorKind::kConfig, "the block size must be at least 1");
  if (stride_ < 1 || stride_ > block_size) {
    throw Error(ErrorKind::kConfig, "an evaluation's stride of " + std::to_string(stride_) +
                                        " is not between 1 and the block size " +
                                        std::to_string(block_size));
  }
  const std::int64_t all = dataset_->size() - 1;
  if (all < 1) too_small(*dataset_, 2, "an evaluation");
  blocks_ = all <= block_size ? 1 : 1 + ceil_divide(all - block_size, stride_);
  batches_ = ceil_divide(blocks_, rows);
  if (max_batches > 0) batches_ = std::min(batches_, max_batches);
  blocks_ = std::min(blocks_, batches_ * rows);
}

std::int64_t EvaluationOrder::targets() const {
  return std::min(dataset_->size() - 1, (blocks_ - 1) * stride_ + block_size_);
}

void EvaluationOrder::fill(std::int64_t index, GlobalBatch& batch) const {
  if (index < 0 || index >= batches_) {
    throw Error(ErrorKind::kInternal, "evaluation batch " + std::to_string(index) +
                                          " is not one of " + std::to_string(batches_));
  }
  const std::int64_t first = index * rows_;
  prepare_batch(batch, std::min(rows_, blocks_ - first), block_size_);
  for (std::int64_t row = 0; row < batch.rows; ++row) {
    const std::int64_t block = first + row;
    const std::int64_t new_target = block == 0 ? 1 : (block - 1) * stride_ + block_size_ + 1;
    fill_row(*dataset_, block * stride_, new_target, row, batch);
  }
  batch.first_row = first;
  batch.position_after = {};
}

GlobalBatch EvaluationOrder::batch(std::int64_t index) const {
  GlobalBatch result;
  fill(index, result);
  return result;
}

}  // namespace tessera
