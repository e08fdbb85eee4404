// The sinks that exist, and which of them a run wants.
#pragma once

#include <memory>
#include <vector>

#include "base/file_system.h"
#include "base/log.h"
#include "tracking/terminal.h"
#include "tracking/tracker.h"

namespace tessera {

// What a run asks for; only rank 0 makes sinks.
struct SinkRequest {
  Path metrics_path;                   // DIR/metrics.jsonl; empty: none
  bool json_lines = false;             // --json: the same lines on stdout
  std::shared_ptr<Terminal> terminal;  // empty: no console
  LogLevel level = LogLevel::kNormal;
};

// In the table's order. A sink that cannot be opened throws its Error here, before training starts.
std::vector<std::unique_ptr<Sink>> make_sinks(const SinkRequest& request);

}  // namespace tessera
