// Rules between settings. Owns: what follows from a preset or another setting, and what
// contradicts.
#pragma once

#include <string_view>

#include "config/load.h"
#include "config/mistakes.h"

namespace tessera {

// Fills in what other settings decide (sizes from the preset, block size, stride, dropout sites,
// name, folder) and marks it kDerived. `stem` is the run's name where none is given.
void complete(ResolvedConfig& resolved, std::string_view stem);

// Adds contradictions between settings, each with the place of the setting to change.
void check(const ResolvedConfig& resolved, Mistakes& mistakes);

}  // namespace tessera
