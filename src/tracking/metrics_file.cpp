#include "tracking/metrics_file.h"

#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

namespace tessera {
namespace {

using Json = nlohmann::json;

// Throws where the value is not an integer: a conversion from 1e300 would be undefined.
std::int64_t integer(const Json& json, const char* key) {
  return json.at(key).get_ref<const Json::number_integer_t&>();
}

bool known(const Json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && !found->is_null();
}

std::optional<double> maybe_number(const Json& json, const char* key) {
  return known(json, key) ? std::optional(json.at(key).get<double>()) : std::nullopt;
}

double number(const Json& json, const char* key) {
  return maybe_number(json, key).value_or(std::numeric_limits<double>::quiet_NaN());
}

std::string text_or_empty(const Json& json, const char* key) {
  return known(json, key) ? json.at(key).get<std::string>() : std::string();
}

// Steps by number while the file is read, so that a later line replaces an earlier one.
struct History {
  RunMetrics metrics;
  std::map<std::int64_t, StepEvent> steps;
  std::map<std::int64_t, EvalEvent> evals;
  std::map<std::int64_t, CheckpointEvent> checkpoints;

  void forget_after(std::int64_t step) {
    steps.erase(steps.upper_bound(step), steps.end());
    evals.erase(evals.upper_bound(step), evals.end());
    checkpoints.erase(checkpoints.upper_bound(step), checkpoints.end());
  }
};

void read_start(const Json& json, History& history) {
  StartEvent event;
  event.run = json.at("run").get<std::string>();
  event.dir = json.at("dir").get<std::string>();
  event.parameters = integer(json, "parameters");
  event.trainable_parameters = integer(json, "trainable_parameters");
  event.world_size = integer(json, "world_size");
  event.global_batch_size = integer(json, "global_batch_size");
  if (known(json, "resumed_from_step")) {
    event.resumed_from_step = integer(json, "resumed_from_step");
  }
  history.forget_after(event.resumed_from_step.value_or(-1));
  history.metrics.start = std::move(event);
  history.metrics.end.reset();
  ++history.metrics.starts;
}

void read_step(const Json& json, History& history) {
  StepEvent event;
  event.step = integer(json, "step");
  event.epoch = number(json, "epoch");
  event.loss = number(json, "loss");
  event.grad_norm = number(json, "grad_norm");
  event.lr = number(json, "lr");
  event.tokens = integer(json, "tokens");
  event.tokens_per_second = number(json, "tokens_per_second");
  event.mfu = maybe_number(json, "mfu");
  event.seconds = number(json, "seconds");
  event.loss_scale = maybe_number(json, "loss_scale");
  if (const auto memory = json.find("memory_bytes"); memory != json.end()) {
    for (const auto& [point, bytes] : memory->items()) {
      event.memory.emplace_back(point, bytes.get<std::int64_t>());
    }
  }
  history.steps.insert_or_assign(event.step, event);
}

void read_eval(const Json& json, History& history) {
  EvalEvent event;
  event.step = integer(json, "step");
  event.loss = number(json, "loss");
  event.perplexity = number(json, "perplexity");
  event.accuracy = maybe_number(json, "accuracy");
  history.evals.insert_or_assign(event.step, event);
}

void read_checkpoint(const Json& json, History& history) {
  CheckpointEvent event;
  event.step = integer(json, "step");
  event.path = json.at("path").get<std::string>();
  history.checkpoints.insert_or_assign(event.step, std::move(event));
}

void read_end(const Json& json, History& history) {
  EndEvent event;
  const auto status = parse_end_status(json.at("status").get<std::string>());
  if (!status) {
    ++history.metrics.unreadable_lines;
    return;
  }
  event.status = *status;
  event.step = integer(json, "step");
  event.loss = maybe_number(json, "loss");
  event.best_eval_loss = maybe_number(json, "best_eval_loss");
  event.model = text_or_empty(json, "model");
  event.error = text_or_empty(json, "error");
  if (known(json, "exit_code")) {
    event.exit_code = static_cast<int>(integer(json, "exit_code"));
  }
  history.metrics.end = std::move(event);
}

void read_line(std::string_view line, History& history) {
  const Json json = Json::parse(line, nullptr, false);
  try {
    const std::string event = json.at("event").get<std::string>();
    if (event == "start") return read_start(json, history);
    if (event == "step") return read_step(json, history);
    if (event == "eval") return read_eval(json, history);
    if (event == "checkpoint") return read_checkpoint(json, history);
    if (event == "end") return read_end(json, history);
    // An event of a newer version is not an error.
  } catch (const Json::exception&) {
    ++history.metrics.unreadable_lines;
  }
}

template <class Event>
std::vector<Event> values(std::map<std::int64_t, Event>&& events) {
  std::vector<Event> list;
  list.reserve(events.size());
  for (auto& [step, event] : events) list.push_back(std::move(event));
  return list;
}

}  // namespace

RunMetrics read_metrics(const Path& path) {
  const MappedFile file(path);
  History history;
  std::string_view text = file.text();
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    if (!line.empty()) read_line(line, history);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  RunMetrics metrics = std::move(history.metrics);
  metrics.steps = values(std::move(history.steps));
  metrics.evals = values(std::move(history.evals));
  metrics.checkpoints = values(std::move(history.checkpoints));
  return metrics;
}

}  // namespace tessera
