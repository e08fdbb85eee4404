// Continues prompts. Owns: the loop over tokens, batches, samples, the reasons to end, and text as
// it comes. Not: loading models, the command line (train/generate.h).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "inference/decoder.h"
#include "inference/kv_cache.h"
#include "inference/sampling.h"
#include "parallel/executor.h"
#include "tokenizer/tokenizer.h"

namespace tessera {

// What generation needs of a model; the pointers must outlive the call.
struct GenerationModel {
  Executor* executor = nullptr;
  const Tokenizer* tokenizer = nullptr;  // null: ids only, no text and no stop strings
  KvCacheShape cache_shape;
  std::int64_t n_positions = 0;
  std::int64_t vocab_size = 0;  // ids from here on are never drawn
  std::optional<std::int64_t> end_of_text;
};

enum class PastContext {
  kError,  // refused before the first token
  kSlide,  // the model sees the last n_positions tokens. From there on each token costs a forward
           // of the whole window, for learned positions make every cached value stale
};
enum class AtEndOfText { kStop, kGoOn };

struct GenerationOptions {
  SamplingOptions sampling;
  std::int64_t max_new_tokens = 128;
  std::int64_t samples = 1;  // of each prompt
  std::uint64_t seed = 0;
  std::vector<std::string> stop;
  PastContext past_context = PastContext::kError;
  AtEndOfText end_of_text = AtEndOfText::kStop;
  Decoder::Caching caching = Decoder::Caching::kOn;
  std::int64_t batch_rows =
      16;  // sequences computed at once; more are done one batch after another
};

enum class FinishReason { kLength, kStop, kEos };
const char* to_string(FinishReason reason);  // length | stop | eos

struct Generation {
  std::size_t prompt = 0;
  std::int64_t sample = 0;
  std::vector<std::int64_t> ids;  // all that were drawn, without the prompt, the end of text too
  // Valid UTF-8, cut before a stop string, without the end of text that ended it.
  std::string text;
  FinishReason finish_reason = FinishReason::kLength;
};

// Called with each piece of text that no later token can change: complete characters, nothing that
// may be the beginning of a stop string. The pieces of a generation make up its text.
using TextCallback =
    std::function<void(std::size_t prompt, std::int64_t sample, std::string_view piece)>;

// One generation for each sample of each prompt, sample by sample within a prompt. A generation
// depends on the weights, its prompt, the options and its sample's number only, not on what else is
// in the batch (up to rounding of the logits). Error{kUsage}: options out of range, an empty
// prompt, ids outside the vocabulary, prompt and new tokens beyond the context without kSlide.
// Error{kNumeric}: logits that are not finite.
std::vector<Generation> generate(const GenerationModel& model,
                                 const std::vector<std::vector<std::int64_t>>& prompts,
                                 const GenerationOptions& options,
                                 const TextCallback& on_text = {});

}  // namespace tessera
