#include "tracking/registry.h"

#include "tracking/console_sink.h"
#include "tracking/json_lines_sink.h"

namespace tessera {
namespace {

constexpr int kStdout = 1;

struct SinkEntry {
  bool (*wanted)(const SinkRequest&);
  std::unique_ptr<Sink> (*make)(const SinkRequest&);
};

// One line a sink.
constexpr SinkEntry kSinks[] = {
    {[](const SinkRequest& r) { return !r.metrics_path.empty(); },
     [](const SinkRequest& r) -> std::unique_ptr<Sink> {
       return JsonLinesSink::append_to(r.metrics_path);
     }},
    {[](const SinkRequest& r) { return r.json_lines; },
     [](const SinkRequest&) -> std::unique_ptr<Sink> {
       return JsonLinesSink::to_descriptor(kStdout, "JSON output on stdout");
     }},
    {[](const SinkRequest& r) { return r.terminal != nullptr; },
     [](const SinkRequest& r) -> std::unique_ptr<Sink> {
       return std::make_unique<ConsoleSink>(r.terminal, r.level);
     }},
};

}  // namespace

std::vector<std::unique_ptr<Sink>> make_sinks(const SinkRequest& request) {
  std::vector<std::unique_ptr<Sink>> sinks;
  for (const SinkEntry& entry : kSinks) {
    if (entry.wanted(request)) sinks.push_back(entry.make(request));
  }
  return sinks;
}

}  // namespace tessera
