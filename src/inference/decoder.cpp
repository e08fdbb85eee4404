#include "inference/decoder.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "base/error.h"

namespace tessera {

namespace {

at::Tensor integers(std::int64_t rows, std::int64_t columns) {
  return at::zeros({rows, columns}, at::kLong);
}

// (B, 1, T, S), true = may attend: no padding, nothing later. A padded query sees itself, for a row
// of the softmax without any key would be NaN and spread through the values of later layers.
at::Tensor padded_mask(const std::vector<std::int64_t>& padding, std::int64_t queries,
                       std::int64_t keys) {
  const auto rows = static_cast<std::int64_t>(padding.size());
  at::Tensor mask = at::zeros({rows, 1, queries, keys}, at::kBool);
  bool* at_row = mask.data_ptr<bool>();
  for (const std::int64_t first : padding) {
    for (std::int64_t t = 0; t < queries; ++t, at_row += keys) {
      const std::int64_t self = keys - queries + t;
      for (std::int64_t key = std::min(first, self); key <= self; ++key) at_row[key] = true;
    }
  }
  return mask;
}

}  // namespace

Decoder::Decoder(Executor& executor, const KvCacheShape& cache_shape, Caching caching)
    : executor_(&executor), cache_shape_(cache_shape), caching_(caching) {}

bool Decoder::any_padding() const {
  return std::any_of(padding_.begin(), padding_.end(), [](std::int64_t p) { return p > 0; });
}

at::Tensor Decoder::last_logits(BatchContext& context, std::int64_t columns) {
  const at::NoGradGuard no_grad;
  const auto rows = static_cast<std::int64_t>(padding_.size());
  context.mode = Mode::kGenerate;
  if (any_padding()) {
    context.attention_mask = padded_mask(padding_, columns, columns_).to(cache_shape_.device);
  }
  context.ids = context.ids.to(cache_shape_.device);
  context.positions = context.positions.to(cache_shape_.device);
  if (caching_ == Caching::kOn) {
    reserve(cache_, cache_shape_, rows, columns_);
    context.cache = &cache_;
  }
  const at::Tensor hidden = executor_->hidden(context);  // (B, T, C)
  cache_.length = columns_;
  const at::Tensor last = hidden.select(1, columns - 1);  // (B, C)
  return executor_->logits(last).to(at::kCPU).contiguous();
}

at::Tensor Decoder::prefill(const std::vector<std::span<const std::int64_t>>& sequences,
                            std::int64_t expected_length) {
  const auto rows = static_cast<std::int64_t>(sequences.size());
  columns_ = 0;
  for (const auto& sequence : sequences) {
    columns_ = std::max(columns_, static_cast<std::int64_t>(sequence.size()));
  }
  padding_.clear();
  cache_ = {};
  BatchContext context;
  context.ids = integers(rows, columns_);
  context.positions = integers(rows, columns_);
  std::int64_t* ids = context.ids.data_ptr<std::int64_t>();
  std::int64_t* positions = context.positions.data_ptr<std::int64_t>();
  for (const auto& sequence : sequences) {
    const std::int64_t padding = columns_ - static_cast<std::int64_t>(sequence.size());
    padding_.push_back(padding);
    std::copy(sequence.begin(), sequence.end(), ids + padding);
    for (std::int64_t t = padding; t < columns_; ++t) positions[t] = t - padding;
    ids += columns_;
    positions += columns_;
  }
  if (caching_ == Caching::kOn) {
    reserve(cache_, cache_shape_, rows, std::max(columns_, expected_length));
  }
  return last_logits(context, columns_);
}

at::Tensor Decoder::step(const std::vector<std::int64_t>& tokens) {
  if (caching_ == Caching::kOff || tokens.size() != padding_.size()) {
    throw Error(ErrorKind::kInternal, "a decoding step needs a cache and one token for each row");
  }
  const auto rows = static_cast<std::int64_t>(tokens.size());
  BatchContext context;
  context.ids = at::tensor(tokens, at::kLong).unsqueeze(1);
  context.positions = integers(rows, 1);
  std::int64_t* positions = context.positions.data_ptr<std::int64_t>();
  for (const std::int64_t padding : padding_) *positions++ = columns_ - padding;
  ++columns_;
  return last_logits(context, 1);
}

void Decoder::select_rows(const std::vector<std::int64_t>& rows) {
  std::vector<std::int64_t> padding;
  for (const std::int64_t row : rows) padding.push_back(padding_[static_cast<std::size_t>(row)]);
  const std::int64_t common = *std::min_element(padding.begin(), padding.end());
  for (std::int64_t& columns : padding) columns -= common;
  if (caching_ == Caching::kOn) tessera::select_rows(cache_, rows, common);
  padding_ = std::move(padding);
  columns_ -= common;
}

}  // namespace tessera
