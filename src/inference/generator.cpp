#include "inference/generator.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "inference/stop_text.h"
#include "tokenizer/utf8_stream.h"

namespace tessera {

namespace {

using Ids = std::vector<std::int64_t>;

std::int64_t length_of(const Ids& ids) { return static_cast<std::int64_t>(ids.size()); }

void check_prompt(const GenerationModel& model, const Ids& prompt, const GenerationOptions& options,
                  const std::string& place) {
  if (prompt.empty()) {
    throw Error(ErrorKind::kUsage, "the prompt has no token", place,
                "Give text or ids to start from.");
  }
  for (const std::int64_t id : prompt) {
    if (id < 0 || id >= model.vocab_size) {
      throw Error(ErrorKind::kUsage,
                  "id " + std::to_string(id) + " is outside the model's vocabulary of " +
                      std::to_string(model.vocab_size),
                  place, "Use the tokenizer that the model was trained with.");
    }
  }
  if (options.past_context == PastContext::kSlide) return;
  // The last new token is only drawn; the model never has to read it.
  const std::int64_t room = model.n_positions - length_of(prompt) + 1;
  if (options.max_new_tokens <= std::max<std::int64_t>(room, 0)) return;
  const std::string sizes = "the prompt's " + std::to_string(prompt.size()) + " tokens and " +
                            std::to_string(options.max_new_tokens) +
                            " new ones exceed the model's context of " +
                            std::to_string(model.n_positions);
  throw Error(ErrorKind::kUsage, sizes, place,
              room > 0 ? "Ask for at most " + std::to_string(room) +
                             " new tokens, or use --sliding, which drops the oldest."
                       : "Shorten the prompt, or use --sliding, which drops the oldest tokens.");
}

void check(const GenerationModel& model, const std::vector<Ids>& prompts,
           const GenerationOptions& options) {
  validate(options.sampling);
  if (options.max_new_tokens < 0 || options.samples < 1 || options.batch_rows < 1) {
    throw Error(ErrorKind::kUsage, "the number of new tokens or of samples is out of range", {},
                "Give 0 or more new tokens and 1 or more samples.");
  }
  if (model.tokenizer == nullptr && !options.stop.empty()) {
    throw Error(ErrorKind::kUsage, "stop strings need text, and the model has no tokenizer", {},
                "Name one with --tokenizer.");
  }
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    check_prompt(model, prompts[i], options,
                 prompts.size() > 1 ? "prompt " + std::to_string(i + 1) : std::string());
  }
}

// One sequence under way.
class Row {
 public:
  Row(const GenerationModel& model, const GenerationOptions& options, const Ids& prompt,
      Generation& result, const TextCallback& on_text)
      : model_(&model),
        options_(&options),
        on_text_(&on_text),
        result_(&result),
        sequence_(prompt),
        text_(options.stop) {}

  const Ids& sequence() const { return sequence_; }

  DrawKey draw_key() const { return {options_->seed, result_->sample, length_of(sequence_)}; }

  // Takes the drawn token; true when the generation is complete.
  bool accept(std::int64_t token) {
    sequence_.push_back(token);
    result_->ids.push_back(token);
    if (token == model_->end_of_text && options_->end_of_text == AtEndOfText::kStop) {
      return finish(FinishReason::kEos);
    }
    if (model_->tokenizer != nullptr) {
      if (text_.append(model_->tokenizer->token_bytes(static_cast<TokenId>(token)))) {
        return finish(FinishReason::kStop);
      }
      show(text_.settled());
    }
    return length_of(result_->ids) >= options_->max_new_tokens && finish(FinishReason::kLength);
  }

 private:
  bool finish(FinishReason reason) {
    result_->finish_reason = reason;
    show(text_.text().size());
    emit(stream_.flush());
    return true;
  }

  void show(std::size_t end) {
    emit(stream_.feed(std::string_view(text_.text()).substr(shown_, end - shown_)));
    shown_ = end;
  }

  void emit(const std::string& piece) {
    if (piece.empty()) return;
    result_->text += piece;
    if (*on_text_) (*on_text_)(result_->prompt, result_->sample, piece);
  }

  const GenerationModel* model_;
  const GenerationOptions* options_;
  const TextCallback* on_text_;
  Generation* result_;
  Ids sequence_;
  StopText text_;
  Utf8Stream stream_;
  std::size_t shown_ = 0;  // bytes of text_ that the stream has got
};

// Ids that a vocabulary with holes does not define: they have no text, so they cannot be drawn.
Ids undefined_ids(const GenerationModel& model) {
  Ids ids;
  for (std::int64_t id = 0; model.tokenizer != nullptr && id < model.vocab_size; ++id) {
    if (!model.tokenizer->is_token(static_cast<TokenId>(id))) ids.push_back(id);
  }
  return ids;
}

// Runs the rows of one batch from their prompts to their ends.
class BatchRun {
 public:
  BatchRun(const GenerationModel& model, const GenerationOptions& options, const Ids& undefined)
      : model_(&model),
        options_(&options),
        undefined_(&undefined),
        sampler_(options.sampling),
        decoder_(*model.executor, model.cache_shape, options.caching) {}

  // Rows of the same prompt must be neighbours: it is then computed once for all of them.
  void run(std::vector<Row> rows) {
    rows_ = std::move(rows);
    at::Tensor logits = start();
    while (draw(logits)) logits = advance();
  }

 private:
  std::span<const std::int64_t> window(const Row& row) const {
    const std::int64_t length = std::min(length_of(row.sequence()), model_->n_positions);
    return std::span(row.sequence()).last(static_cast<std::size_t>(length));
  }

  at::Tensor start() {
    std::vector<std::span<const std::int64_t>> prompts;
    std::int64_t longest = 0;
    const Ids* previous = nullptr;
    for (const Row& row : rows_) {
      if (previous == nullptr || row.sequence() != *previous) prompts.push_back(window(row));
      previous = &row.sequence();
      source_.push_back(static_cast<std::int64_t>(prompts.size()) - 1);
      longest = std::max(longest, length_of(row.sequence()));
    }
    // max_new_tokens may be anything up to the largest integer.
    const std::int64_t room = std::max<std::int64_t>(model_->n_positions - longest, 0);
    const std::int64_t expected = longest + std::min(options_->max_new_tokens - 1, room);
    at::Tensor logits = decoder_.prefill(prompts, expected);
    if (prompts.size() < rows_.size()) decoder_.select_rows(source_);
    return logits;
  }

  // Draws a token for each row and drops the rows that are complete; false when none is left.
  bool draw(const at::Tensor& logits) {
    const auto width = static_cast<std::size_t>(model_->vocab_size);
    std::vector<std::int64_t> kept;
    std::vector<Row> going_on;
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      Row& row = rows_[i];
      // A copy: several rows may read the logits of one prompt.
      const float* from = logits.data_ptr<float>() + source_[i] * logits.size(1);
      row_logits_.assign(from, from + width);
      for (const std::int64_t id : *undefined_) {
        row_logits_[static_cast<std::size_t>(id)] = -std::numeric_limits<float>::infinity();
      }
      const std::int64_t token =
          sampler_.choose(row_logits_, row.sequence(), uniform_draw(row.draw_key()));
      if (row.accept(token)) continue;
      kept.push_back(static_cast<std::int64_t>(i));
      going_on.push_back(std::move(row));
    }
    if (kept.empty()) return false;
    if (kept.size() < rows_.size()) decoder_.select_rows(kept);
    rows_ = std::move(going_on);
    source_.resize(rows_.size());
    std::iota(source_.begin(), source_.end(), 0);
    return true;
  }

  at::Tensor advance() {
    const bool past_context = std::any_of(rows_.begin(), rows_.end(), [this](const Row& row) {
      return length_of(row.sequence()) > model_->n_positions;
    });
    if (past_context || options_->caching == Decoder::Caching::kOff) {
      std::vector<std::span<const std::int64_t>> windows;
      for (const Row& row : rows_) windows.push_back(window(row));
      return decoder_.prefill(windows);
    }
    std::vector<std::int64_t> tokens;
    for (const Row& row : rows_) tokens.push_back(row.sequence().back());
    return decoder_.step(tokens);
  }

  const GenerationModel* model_;
  const GenerationOptions* options_;
  const Ids* undefined_;
  TokenSampler sampler_;
  Decoder decoder_;
  std::vector<Row> rows_;
  std::vector<std::int64_t> source_;  // the row of the logits that each row reads
  std::vector<float> row_logits_;
};

}  // namespace

const char* to_string(FinishReason reason) {
  switch (reason) {
    case FinishReason::kLength: return "length";
    case FinishReason::kStop: return "stop";
    case FinishReason::kEos: return "eos";
  }
  return "?";
}

std::vector<Generation> generate(const GenerationModel& model, const std::vector<Ids>& prompts,
                                 const GenerationOptions& options, const TextCallback& on_text) {
  check(model, prompts, options);
  std::vector<Generation> results;
  for (std::size_t prompt = 0; prompt < prompts.size(); ++prompt) {
    for (std::int64_t sample = 0; sample < options.samples; ++sample) {
      results.push_back({.prompt = prompt, .sample = sample, .ids = {}, .text = {}});
    }
  }
  if (options.max_new_tokens == 0) return results;
  const Ids undefined = undefined_ids(model);
  const auto batch_rows = static_cast<std::size_t>(options.batch_rows);
  for (std::size_t begin = 0; begin < results.size(); begin += batch_rows) {
    std::vector<Row> rows;
    for (std::size_t i = begin; i < std::min(begin + batch_rows, results.size()); ++i) {
      rows.emplace_back(model, options, prompts[results[i].prompt], results[i], on_text);
    }
    BatchRun(model, options, undefined).run(std::move(rows));
  }
  return results;
}

}  // namespace tessera
