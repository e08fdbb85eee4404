// The way to libtessera_engine.so. Owns: finding and loading it. Only commands that need tensors
// do.
#pragma once

#include <string>
#include <vector>

#include "base/file_system.h"
#include "train/engine_api.h"

namespace tessera::cli {

// Where the engine is looked for, in this order.
std::vector<Path> engine_candidates();

// Loads it once. Error{kInternal} with the loader's own reason and a pointer to `tessera doctor`.
const EngineApi& load_engine();

}  // namespace tessera::cli
