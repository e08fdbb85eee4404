// Help texts, from the tables that commands declare.
#pragma once

#include <string>
#include <string_view>

#include "cli/command.h"

namespace tessera::cli {

// In 80 columns: usage, description, options by group with their defaults, environment, examples.
// `path` is how the user calls it ("tessera config ls").
std::string help_text(const Command& command, std::string_view path);

}  // namespace tessera::cli
