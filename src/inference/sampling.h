// The choice of one token from one row of logits. Owns: the arithmetic of greedy choice, repetition
// penalty, temperature, top-k, top-p and min-p, and the random number of a draw. Not: models, text,
// batches. No torch.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tessera {

// Applied in the order of the fields, which is Hugging Face's: the penalty changes logits, the
// temperature divides them, each filter removes tokens from what the one before it has left.
// Definitions: transformers' RepetitionPenaltyLogitsProcessor, TemperatureLogitsWarper,
// TopKLogitsWarper, TopPLogitsWarper, MinPLogitsWarper.
struct SamplingOptions {
  // > 0. The logit of every token of the sequence so far is divided by it, or multiplied where it
  // is negative; 1: off. Applies to the greedy choice too.
  double repetition_penalty = 1.0;
  double temperature = 1.0;  // >= 0; 0: the token with the largest logit, filters have no effect
  std::int64_t top_k = 0;  // >= 0; the k largest logits stay (and those equal to the last); 0: off
  double top_p = 1.0;      // in (0, 1]; the fewest tokens whose probabilities reach it; 1: off
  double min_p = 0.0;      // in [0, 1]; probability at least min_p times the largest; 0: off
};

// Error{kUsage} that names the option and its range.
void validate(const SamplingOptions& options);

// Identifies one draw: it depends on nothing else, so a sample is the same alone and in any batch,
// with and without a cache, and when a sequence is continued from its middle.
struct DrawKey {
  std::uint64_t seed = 0;
  std::int64_t sample = 0;    // which of several samples of one prompt
  std::int64_t position = 0;  // tokens of the sequence before the drawn one, the prompt's included
};

// Uniform in [0, 1): the 53 high bits of Philox4x32-10 with key `seed`, stream `sample` and counter
// `position`.
double uniform_draw(const DrawKey& key);

// Chooses tokens; keeps memory between calls, so one object for each thread.
class TokenSampler {
 public:
  explicit TokenSampler(const SamplingOptions& options);  // Error{kUsage}

  // Index into `logits`. `history`: ids of the sequence so far, ids outside `logits` are ignored.
  // `uniform` in [0, 1) selects by the inverse of the cumulative distribution in the order of ids;
  // it is not read when greedy. -inf is never chosen; where two logits are equal the greedy choice
  // is the lower id. Error{kNumeric} where a logit is NaN or +inf, or all are -inf.
  std::int64_t choose(std::span<const float> logits, std::span<const std::int64_t> history,
                      double uniform);

  // The distribution that choose() draws from, by id; zeros for removed tokens. For tests and
  // inspection; a single one when greedy.
  std::vector<double> probabilities(std::span<const float> logits,
                                    std::span<const std::int64_t> history);

 private:
  void weigh(std::span<const float> logits, std::span<const std::int64_t> history);
  void keep_top_k();
  void keep_top_p();

  SamplingOptions options_;
  std::vector<double> scores_;   // logits after penalty and temperature, -inf where removed
  std::vector<double> weights_;  // exp(score - largest score)
  std::vector<double> sorted_;
  std::vector<std::int64_t> order_;
};

}  // namespace tessera
