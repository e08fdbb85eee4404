#include "inference/sampling.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "base/error.h"
#include "base/philox.h"

namespace tessera {

namespace {

constexpr double kRemoved = -std::numeric_limits<double>::infinity();

void require(bool holds, const char* option, const char* range, double value) {
  if (holds) return;
  std::string text = std::to_string(value);
  throw Error(ErrorKind::kUsage, std::string(option) + " cannot be " + text, {},
              std::string("Give ") + range + ".");
}

void penalise(std::vector<double>& scores, std::span<const std::int64_t> history, double penalty,
              std::vector<std::int64_t>& unique) {
  unique.assign(history.begin(), history.end());
  std::sort(unique.begin(), unique.end());
  unique.erase(std::unique(unique.begin(), unique.end()), unique.end());
  for (const std::int64_t id : unique) {
    if (id < 0 || id >= static_cast<std::int64_t>(scores.size())) continue;
    double& score = scores[static_cast<std::size_t>(id)];
    score = score < 0 ? score * penalty : score / penalty;
  }
}

}  // namespace

void validate(const SamplingOptions& options) {
  require(options.temperature >= 0 && std::isfinite(options.temperature), "temperature",
          "a number of 0 (greedy) or more", options.temperature);
  require(options.top_k >= 0, "top-k", "a count of 0 (off) or more",
          static_cast<double>(options.top_k));
  require(options.top_p > 0 && options.top_p <= 1, "top-p", "a number above 0 and up to 1 (off)",
          options.top_p);
  require(options.min_p >= 0 && options.min_p <= 1, "min-p", "a number from 0 (off) to 1",
          options.min_p);
  require(options.repetition_penalty > 0 && std::isfinite(options.repetition_penalty),
          "repetition penalty", "a number above 0 (1: off)", options.repetition_penalty);
}

double uniform_draw(const DrawKey& key) {
  const std::uint64_t bits = philox_bits(key.seed, static_cast<std::uint64_t>(key.sample),
                                         static_cast<std::uint64_t>(key.position));
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

TokenSampler::TokenSampler(const SamplingOptions& options) : options_(options) {
  validate(options);
}

// The k-th largest score is the bar, as in transformers: equals of it stay.
void TokenSampler::keep_top_k() {
  const auto k = static_cast<std::size_t>(options_.top_k);
  if (k == 0 || k >= scores_.size()) return;
  sorted_ = scores_;
  std::nth_element(sorted_.begin(), sorted_.begin() + static_cast<std::ptrdiff_t>(k - 1),
                   sorted_.end(), std::greater<>());
  const double bar = sorted_[k - 1];
  for (double& score : scores_) {
    if (score < bar) score = kRemoved;
  }
}

// A token stays while the tokens before it, by falling weight, have not reached top_p. A heap gives
// them in that order without sorting the rest; of equals the higher id comes first, as in a stable
// ascending sort read from its end.
void TokenSampler::keep_top_p() {
  if (options_.top_p >= 1) return;
  double total = 0;
  order_.clear();
  for (std::size_t id = 0; id < weights_.size(); ++id) {
    total += weights_[id];
    if (weights_[id] > 0) order_.push_back(static_cast<std::int64_t>(id));
  }
  const auto lighter = [this](std::int64_t a, std::int64_t b) {
    const double left = weights_[static_cast<std::size_t>(a)];
    const double right = weights_[static_cast<std::size_t>(b)];
    return left != right ? left < right : a < b;
  };
  std::make_heap(order_.begin(), order_.end(), lighter);
  double before = 0;
  auto end = order_.end();
  while (end != order_.begin() && before < options_.top_p * total) {
    std::pop_heap(order_.begin(), end, lighter);
    --end;
    before += weights_[static_cast<std::size_t>(*end)];
  }
  for (auto removed = order_.begin(); removed != end; ++removed) {
    weights_[static_cast<std::size_t>(*removed)] = 0;
  }
}

void TokenSampler::weigh(std::span<const float> logits, std::span<const std::int64_t> history) {
  scores_.assign(logits.begin(), logits.end());
  double largest = kRemoved;
  for (std::size_t id = 0; id < scores_.size(); ++id) {
    if (std::isnan(scores_[id]) || scores_[id] == std::numeric_limits<double>::infinity()) {
      throw Error(ErrorKind::kNumeric, "the model's logits are not finite",
                  "token " + std::to_string(id),
                  "The weights may be damaged, or overflow in this precision: try f32.");
    }
    largest = std::max(largest, scores_[id]);
  }
  if (largest == kRemoved) {
    throw Error(ErrorKind::kNumeric, "the model's logits are all minus infinity", {},
                "The weights may be damaged.");
  }
  if (options_.repetition_penalty != 1) {
    penalise(scores_, history, options_.repetition_penalty, order_);
  }
  weights_.assign(scores_.size(), 0);
  if (options_.temperature == 0) {
    const auto best = std::max_element(scores_.begin(), scores_.end());
    weights_[static_cast<std::size_t>(best - scores_.begin())] = 1;
    return;
  }
  keep_top_k();
  largest = *std::max_element(scores_.begin(), scores_.end());
  for (std::size_t id = 0; id < scores_.size(); ++id) {
    // The difference first: a tiny temperature must not overflow.
    weights_[id] = std::exp((scores_[id] - largest) / options_.temperature);
  }
  keep_top_p();
  for (double& weight : weights_) {
    if (weight < options_.min_p) weight = 0;  // the largest weight is exp(0) = 1
  }
}

std::int64_t TokenSampler::choose(std::span<const float> logits,
                                  std::span<const std::int64_t> history, double uniform) {
  weigh(logits, history);
  double total = 0;
  for (const double weight : weights_) total += weight;
  const double target = uniform * total;
  double sum = 0;
  std::int64_t last = -1;
  for (std::size_t id = 0; id < weights_.size(); ++id) {
    if (weights_[id] == 0) continue;
    sum += weights_[id];
    last = static_cast<std::int64_t>(id);
    if (target < sum) return last;
  }
  return last;  // uniform so near to 1 that rounding left it above the sum
}

std::vector<double> TokenSampler::probabilities(std::span<const float> logits,
                                                std::span<const std::int64_t> history) {
  weigh(logits, history);
  double total = 0;
  for (const double weight : weights_) total += weight;
  std::vector<double> result = weights_;
  for (double& weight : result) weight /= total;
  return result;
}

}  // namespace tessera
