#include "train/evaluate.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/text_format.h"
#include "tracking/console_text.h"
#include "tracking/terminal.h"
#include "train/evaluate_lambada.h"
#include "train/evaluate_loss.h"
#include "train/evaluate_text.h"
#include "train/load_model.h"

namespace tessera {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// A bar on a terminal, a plain line now and then in a pipe.
class Progress {
 public:
  Progress(Terminal& terminal, Log& log) : terminal_(terminal), log_(log) {}
  ~Progress() { terminal_.set_status({}); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void show(std::int64_t done, std::int64_t total, double loss) {
    const double elapsed = seconds_since(begin_);
    const bool interactive = terminal_.traits().interactive;
    if (log_.level() == LogLevel::kQuiet || elapsed < next_) return;
    next_ = elapsed + (interactive ? 0.1 : 10.0);
    const double each = elapsed / static_cast<double>(done);
    if (interactive) {
      terminal_.set_status(progress_line({.activity = "evaluate",
                                          .done = done,
                                          .total = total,
                                          .elapsed_seconds = elapsed,
                                          .seconds_per_unit = each,
                                          .notes = {"loss " + format_fixed(loss, 4)}},
                                         terminal_.traits(), terminal_.columns()));
    } else {
      log_.info("evaluate " + std::to_string(done) + "/" + std::to_string(total) + " | loss " +
                format_fixed(loss, 4) + " | eta " +
                format_duration(each * static_cast<double>(total - done)));
    }
  }
  double elapsed() const { return seconds_since(begin_); }

 private:
  Terminal& terminal_;
  Log& log_;
  Clock::time_point begin_ = Clock::now();
  double next_ = 0.5;
};

struct Value {
  const char* name;
  double number;
  int decimals;  // 0: a count
};
using Values = std::vector<Value>;  // in the order of the output; NaN: not known

void print(const Values& values, bool json) {
  nlohmann::ordered_json object;
  std::string text;
  for (const Value& value : values) {
    if (value.decimals == 0) {
      object[value.name] = static_cast<std::int64_t>(value.number);
    } else {
      object[value.name] = std::isfinite(value.number) ? nlohmann::ordered_json(value.number)
                                                       : nlohmann::ordered_json();
    }
    std::string line = value.name;
    line.resize(18, ' ');
    if (std::isnan(value.number)) {
      line += "-";
    } else if (value.decimals == 0) {
      line += format_count(static_cast<std::int64_t>(value.number));
    } else {
      line += format_fixed(value.number, value.decimals);
    }
    text += line + "\n";
  }
  if (json) text = object.dump() + "\n";
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0) {
    throw Error(ErrorKind::kIo, std::string("cannot write the result: ") + std::strerror(errno),
                "standard output");
  }
}

double finite_loss(double loss) {
  if (std::isfinite(loss)) return loss;
  throw Error(ErrorKind::kNumeric, "the loss is " + format_fixed(loss, 0), {},
              "The weights may be damaged, or overflow in this precision: try --precision f32.");
}

WindowPlan window_plan(const EvaluateRequest& request, std::int64_t n_positions) {
  WindowPlan plan;
  plan.block_size = request.block_size == 0 ? n_positions : request.block_size;
  plan.stride = request.stride == 0 ? plan.block_size : request.stride;
  if (plan.block_size < 1 || plan.block_size > n_positions) {
    throw Error(ErrorKind::kUsage,
                "the block size " + std::to_string(plan.block_size) +
                    " is outside the model's context of " + std::to_string(n_positions),
                "--block-size", "Give 1 to " + std::to_string(n_positions) + ".");
  }
  if (plan.stride < 1 || plan.stride > plan.block_size) {
    throw Error(ErrorKind::kUsage,
                "the stride " + std::to_string(plan.stride) + " is beyond the block size of " +
                    std::to_string(plan.block_size) + ": tokens would be left out",
                "--stride", "Give 1 to " + std::to_string(plan.block_size) + ".");
  }
  return plan;
}

EvaluationSource evaluation_source(const EvaluateRequest& request) {
  return {.paths = request.data,
          .format = request.format,
          .text_field = request.text_field,
          .text_column = request.text_column};
}

Values evaluate_loss(const EvaluateRequest& request, LoadedModel& model, Terminal& terminal,
                     Log& log) {
  const WindowPlan plan = window_plan(request, model.shape.n_positions);
  const EvaluationText text =
      read_evaluation_text(evaluation_source(request), model.require_tokenizer(), log);
  if (request.word_perplexity && !text.counts_known) {
    throw Error(ErrorKind::kData, "words cannot be counted in data that comes as token ids", {},
                "Evaluate on the text itself, or leave out --word-perplexity.");
  }
  log.detail(format_count(text.tokens()) + " tokens in " +
             format_count(static_cast<std::int64_t>(text.documents.size())) +
             " documents, blocks of " + format_count(plan.block_size) + " with stride " +
             format_count(plan.stride));
  Progress progress(terminal, log);
  const EvaluationSums sums =
      evaluate_documents(*model.executor, model.device, text, plan, request.batch_size,
                         [&](std::int64_t done, std::int64_t total, double loss) {
                           progress.show(done, total, loss);
                         });
  const double loss = finite_loss(sums.loss / sums.weight);
  const double unknown = std::nan("");
  Values values = {
      {"loss", loss, 6},
      {"perplexity", std::exp(loss), 4},
      {"bits_per_byte",
       text.counts_known ? sums.loss / std::log(2.0) / static_cast<double>(text.bytes) : unknown,
       6},
      {"accuracy", sums.correct / sums.weight, 6},
      {"tokens", sums.weight, 0}};
  if (request.word_perplexity) {
    values.push_back({"word_perplexity", std::exp(sums.loss / static_cast<double>(text.words)), 4});
  }
  log.info(format_count(static_cast<std::int64_t>(sums.weight)) + " tokens in " +
           format_fixed(progress.elapsed(), 1) + " s (" +
           format_short_count(sums.weight / std::max(progress.elapsed(), 1e-9)) + " tok/s)");
  return values;
}

Values evaluate_lambada(const EvaluateRequest& request, LoadedModel& model, Terminal& terminal,
                        Log& log) {
  if (request.stride != 0 || request.block_size != 0 || request.word_perplexity) {
    throw Error(ErrorKind::kUsage,
                "--stride, --block-size and --word-perplexity have no meaning for lambada", {},
                "Leave them out.");
  }
  const Tokenizer& tokenizer = model.require_tokenizer();
  const std::vector<std::string> passages = read_plain_documents(evaluation_source(request), log);
  if (passages.empty()) {
    throw Error(ErrorKind::kData, "there is no passage", request.data.front().string());
  }
  Progress progress(terminal, log);
  const LambadaScores scores =
      evaluate_lambada(*model.executor, model.device, passages, tokenizer, model.shape.n_positions,
                       request.batch_size, [&](std::int64_t done, std::int64_t total, double loss) {
                         progress.show(done, total, loss);
                       });
  const auto count = static_cast<double>(scores.passages);
  const double nats = finite_loss(scores.nats / count);
  return {{"accuracy", static_cast<double>(scores.correct) / count, 6},
          {"perplexity", std::exp(nats), 4},
          {"loss", scores.nats / static_cast<double>(scores.tokens), 6},
          {"passages", count, 0},
          {"tokens", static_cast<double>(scores.tokens), 0}};
}

}  // namespace

int run_evaluate(const EvaluateRequest& request) {
  Terminal terminal;
  Log log(request.log_level, [&](std::string_view line) { terminal.print(line); });
  if (request.task != "loss" && request.task != "lambada") {
    throw Error(ErrorKind::kUsage, "unknown task '" + request.task + "'", "--task",
                "Valid: loss, lambada.");
  }
  if (request.data.empty() || request.batch_size < 1) {
    throw Error(ErrorKind::kUsage, "evaluation needs data and a batch size of 1 or more");
  }
  const std::unique_ptr<LoadedModel> model = load_model({.model = request.model,
                                                         .tokenizer = request.tokenizer,
                                                         .device = request.device,
                                                         .precision = request.precision},
                                                        log);
  const Values values = request.task == "loss" ? evaluate_loss(request, *model, terminal, log)
                                               : evaluate_lambada(request, *model, terminal, log);
  print(values, request.json);
  return 0;
}

}  // namespace tessera
