// Asks the engine about itself without trusting it. Owns: the child process that loads it. Not:
// finding the engine (engine_loader.h), judging the answer (doctor_report.h).
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include "train/engine_api.h"

namespace tessera::cli {

struct EngineProbe {
  std::optional<EngineFacts> facts;  // empty: it could not be loaded, or died
  std::string failure;               // then why, in one line
  double load_seconds = 0;           // to the facts, without measuring
};

// Loads the engine by `load` in a child process and sends its facts back: a library that crashes
// (built for another processor) or hangs while it loads becomes a `failure`, and cannot take the
// caller with it. Call it before the process has threads. `load` throws tessera::Error where there
// is no engine.
EngineProbe probe_engine(const std::function<const EngineApi&()>& load, bool measure,
                         std::chrono::seconds time_limit);

}  // namespace tessera::cli
