#include "train/generate.h"

#include <ATen/Parallel.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <span>

#include "base/error.h"
#include "base/log.h"
#include "base/text_format.h"
#include "inference/generator.h"
#include "tokenizer/utf8_stream.h"
#include "train/load_model.h"

namespace tessera {

namespace {

using Ids = std::vector<std::int64_t>;

constexpr std::int64_t kDefaultNewTokens = 128;
constexpr std::int64_t kSingleThreadParameters = 4'000'000;

void write_result(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0) {
    throw Error(ErrorKind::kIo, std::string("cannot write the result: ") + std::strerror(errno),
                "standard output");
  }
}

GenerationOptions generation_options(const GenerateRequest& request) {
  GenerationOptions options;
  options.sampling = {.repetition_penalty = request.repetition_penalty,
                      .temperature = request.temperature,
                      .top_k = request.top_k,
                      .top_p = request.top_p,
                      .min_p = request.min_p};
  options.max_new_tokens = request.max_new_tokens;
  options.samples = request.samples;
  options.seed = request.seed;
  options.stop = request.stop;
  options.past_context = request.sliding ? PastContext::kSlide : PastContext::kError;
  options.end_of_text = request.ignore_eos ? AtEndOfText::kGoOn : AtEndOfText::kStop;
  options.caching = request.no_cache ? Decoder::Caching::kOff : Decoder::Caching::kOn;
  return options;
}

// An empty text begins where a document begins: after the end of the one before.
Ids encode_prompt(const LoadedModel& model, const std::string& prompt) {
  const std::vector<TokenId> tokens = model.require_tokenizer().encode(prompt);
  if (!tokens.empty()) return Ids(tokens.begin(), tokens.end());
  if (model.end_of_text) return {*model.end_of_text};
  throw Error(ErrorKind::kUsage,
              "an empty prompt needs an end-of-text token to start from, and the model has none",
              {}, "Give some text.");
}

// Who names no number gets what fits; at least one token, so that a prompt that fills the context
// is refused with the reason.
std::int64_t default_new_tokens(const LoadedModel& model, const std::vector<Ids>& prompts,
                                const GenerationOptions& options) {
  std::int64_t count = kDefaultNewTokens;
  if (options.past_context == PastContext::kSlide) return count;
  for (const Ids& prompt : prompts) {
    count = std::min(count, model.shape.n_positions - static_cast<std::int64_t>(prompt.size()));
  }
  return std::max<std::int64_t>(count, 1);
}

std::string ids_text(const Ids& ids) {
  std::string text;
  for (const std::int64_t id : ids) text += (text.empty() ? "" : ",") + std::to_string(id);
  return text;
}

class Printer {
 public:
  Printer(const LoadedModel& model, const GenerateRequest& request, const std::vector<Ids>& prompts,
          std::size_t count)
      : model_(model), request_(request), prompts_(prompts), several_(count > 1) {}

  std::string prompt_text(std::size_t prompt) const {
    if (!request_.prompts.empty()) return request_.prompts[prompt];
    const std::vector<TokenId> ids(prompts_[prompt].begin(), prompts_[prompt].end());
    return replace_invalid_utf8(model_.tokenizer->decode(ids));
  }

  void print(const Generation& generation) const {
    write_result(request_.json ? json_line(generation) : plain(generation));
  }

 private:
  std::string json_line(const Generation& generation) const {
    nlohmann::ordered_json line = {{"ids", generation.ids}};
    line["text"] = model_.tokenizer == nullptr ? nlohmann::ordered_json()
                                               : nlohmann::ordered_json(generation.text);
    line["finish_reason"] = to_string(generation.finish_reason);
    if (several_) {
      line["prompt"] = generation.prompt;
      line["sample"] = generation.sample;
    }
    return line.dump() + "\n";
  }

  std::string plain(const Generation& generation) const {
    std::string text;
    if (several_) {
      text += "--- ";
      if (prompts_.size() > 1) text += "prompt " + std::to_string(generation.prompt + 1) + " ";
      if (request_.samples > 1) text += "sample " + std::to_string(generation.sample + 1) + " ";
      text += "---\n";
    }
    text += model_.tokenizer == nullptr ? ids_text(generation.ids)
                                        : prompt_text(generation.prompt) + generation.text;
    return text + "\n";
  }

  const LoadedModel& model_;
  const GenerateRequest& request_;
  const std::vector<Ids>& prompts_;
  bool several_;
};

void log_speed(const std::vector<Generation>& generations, double seconds, Log& log) {
  std::size_t tokens = 0;
  for (const Generation& generation : generations) tokens += generation.ids.size();
  std::string line =
      format_count(static_cast<std::int64_t>(tokens)) + " tokens in " + format_fixed(seconds, 2) +
      " s (" + format_fixed(static_cast<double>(tokens) / std::max(seconds, 1e-9), 1) + " tok/s)";
  if (generations.size() == 1) {
    line += ", ended by " + std::string(to_string(generations.front().finish_reason));
  }
  log.info(line);
}

}  // namespace

int run_generate(const GenerateRequest& request) {
  Log log(request.log_level);
  GenerationOptions options = generation_options(request);
  validate(options.sampling);  // before the model is loaded
  const std::unique_ptr<LoadedModel> model = load_model({.model = request.model,
                                                         .tokenizer = request.tokenizer,
                                                         .device = request.device,
                                                         .precision = request.precision},
                                                        log);
  // Products so small cost less than waking the other threads for each of them.
  if (parameter_count(model->shape) < kSingleThreadParameters) at::set_num_threads(1);
  std::vector<Ids> prompts = request.prompt_ids;
  for (const std::string& prompt : request.prompts) {
    prompts.push_back(encode_prompt(*model, prompt));
  }
  if (options.max_new_tokens == 0)
    options.max_new_tokens = default_new_tokens(*model, prompts, options);
  const std::size_t count = prompts.size() * static_cast<std::size_t>(request.samples);
  const Printer printer(*model, request, prompts, count);
  const bool stream = request.stream && !request.json && count == 1 &&
                      model->tokenizer != nullptr && ::isatty(STDOUT_FILENO) == 1;
  TextCallback on_text;
  bool begun = false;
  if (stream) {
    on_text = [&](std::size_t prompt, std::int64_t, std::string_view piece) {
      if (!begun) write_result(printer.prompt_text(prompt));
      begun = true;
      write_result(piece);
    };
  }
  const auto begin = std::chrono::steady_clock::now();
  const std::vector<Generation> generations =
      generate(model->generation_model(), prompts, options, on_text);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  if (begun) {
    write_result("\n");
  } else {
    for (const Generation& generation : generations) printer.print(generation);
  }
  log_speed(generations, seconds.count(), log);
  return 0;
}

}  // namespace tessera
