// Reads what JsonLinesSink wrote: for a resume, reports and comparisons of runs.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/file_system.h"
#include "tracking/events.h"

namespace tessera {

// The history that a run stands on now. Fields that the JSON form lacks keep their defaults; null
// numbers are NaN.
struct RunMetrics {
  std::optional<StartEvent> start;  // the newest
  std::vector<StepEvent> steps;     // by step, each once: later lines supersede earlier ones
  std::vector<EvalEvent> evals;
  std::vector<CheckpointEvent> checkpoints;
  std::optional<EndEvent> end;  // empty while the newest start has none (running, or killed)
  std::int64_t starts = 0;      // 1 + resumes
  std::int64_t unreadable_lines = 0;
};

// A start that resumed from step N discards what was written about later steps; a fresh start
// discards all. A torn or foreign line is counted and skipped. Error{kIo} if the file cannot be
// read.
RunMetrics read_metrics(const Path& path);

}  // namespace tessera
