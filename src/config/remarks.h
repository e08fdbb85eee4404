// What a configuration says that has another effect than its reader may expect. Owns: settings that
// are accepted because configs of other trainers have them. Not: mistakes (complete.h).
#pragma once

#include <string>
#include <vector>

#include "config/config.h"

namespace tessera {

// One sentence each, that begins with the key; empty for most configs. `config` is completed.
std::vector<std::string> config_remarks(const Config& config);

}  // namespace tessera
