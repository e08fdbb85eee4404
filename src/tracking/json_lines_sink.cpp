#include "tracking/json_lines_sink.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "base/error.h"

namespace tessera {
namespace {

using Json =
    nlohmann::ordered_json;  // the documented order; writes a number that is not finite as null

template <class T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json or_null(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

Json to_json(const StartEvent& e) {
  return {{"event", "start"},
          {"run", e.run},
          {"dir", e.dir},
          {"parameters", e.parameters},
          {"trainable_parameters", e.trainable_parameters},
          {"world_size", e.world_size},
          {"global_batch_size", e.global_batch_size},
          {"resumed_from_step", or_null(e.resumed_from_step)}};
}

Json to_json(const ProgressEvent&) { return nullptr; }

Json to_json(const StepEvent& e) {
  Json memory = Json::object();
  for (const auto& [point, bytes] : e.memory) memory[point] = bytes;
  Json json = {{"event", "step"},          {"step", e.step},
               {"epoch", e.epoch},         {"loss", e.loss},
               {"grad_norm", e.grad_norm}, {"lr", e.lr},
               {"tokens", e.tokens},       {"tokens_per_second", e.tokens_per_second},
               {"mfu", or_null(e.mfu)},    {"seconds", e.seconds},
               {"memory_bytes", memory}};
  if (e.loss_scale) json["loss_scale"] = *e.loss_scale;
  return json;
}

Json to_json(const LossScaleEvent& e) {
  return {{"event", "loss_scale"},
          {"step", e.step},
          {"loss_scale", e.loss_scale},
          {"not_finite", e.not_finite}};
}

Json to_json(const EvalEvent& e) {
  return {{"event", "eval"},
          {"step", e.step},
          {"loss", e.loss},
          {"perplexity", e.perplexity},
          {"accuracy", or_null(e.accuracy)}};
}

Json to_json(const CheckpointEvent& e) {
  return {{"event", "checkpoint"}, {"step", e.step}, {"path", e.path}};
}

Json to_json(const EndEvent& e) {
  Json json = {{"event", "end"},
               {"status", to_string(e.status)},
               {"step", e.step},
               {"loss", or_null(e.loss)},
               {"best_eval_loss", or_null(e.best_eval_loss)},
               {"model", or_null(e.model)}};
  if (!e.error.empty()) json["error"] = e.error;
  if (e.exit_code) json["exit_code"] = *e.exit_code;
  return json;
}

[[noreturn]] void fail(const std::string& action, const std::string& where, int code) {
  const bool full = code == ENOSPC || code == EDQUOT;
  throw Error(ErrorKind::kIo, "cannot " + action + ": " + std::strerror(code), where,
              full ? "Free space there." : "Check that its folder exists and is writable.");
}

void write_whole(int file_descriptor, std::string_view bytes, const std::string& where) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(file_descriptor, bytes.data(), bytes.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      if (errno == EPIPE) return;  // the reader has gone (`| head`): nothing to tell it, or anybody
      fail("write metrics", where, errno);
    }
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
}

// A process killed in the middle of a write leaves a line without its end; readers skip it, and the
// next line must not be glued to it.
bool last_line_is_torn(int file_descriptor) {
  const off_t size = ::lseek(file_descriptor, 0, SEEK_END);
  char last = '\n';
  return size > 0 && ::pread(file_descriptor, &last, 1, size - 1) == 1 && last != '\n';
}

}  // namespace

std::string to_json_line(const Event& event) {
  const Json json = std::visit([](const auto& e) { return to_json(e); }, event);
  if (json.is_null()) return {};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

JsonLinesSink::JsonLinesSink(int file_descriptor, bool owned, std::string name)
    : file_descriptor_(file_descriptor), owned_(owned), name_(std::move(name)) {}

std::unique_ptr<JsonLinesSink> JsonLinesSink::append_to(const Path& path) {
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (descriptor < 0) fail("open the metrics file", path.string(), errno);
  std::unique_ptr<JsonLinesSink> sink(
      new JsonLinesSink(descriptor, true, "metrics file " + path.string()));
  if (last_line_is_torn(descriptor)) write_whole(descriptor, "\n", path.string());
  return sink;
}

std::unique_ptr<JsonLinesSink> JsonLinesSink::to_descriptor(int file_descriptor, std::string name) {
  return std::unique_ptr<JsonLinesSink>(new JsonLinesSink(file_descriptor, false, std::move(name)));
}

JsonLinesSink::~JsonLinesSink() {
  if (owned_) ::close(file_descriptor_);
}

void JsonLinesSink::on(const Event& event) {
  std::string line = to_json_line(event);
  if (line.empty()) return;
  line += '\n';
  write_whole(file_descriptor_, line, name_);
}

}  // namespace tessera
