// The list of subcommands. Adding one: NAME_command.cpp with `const Command& NAME_command()`, and
// one line in registry.cpp.
#pragma once

#include <span>

#include "cli/command.h"

namespace tessera::cli {

using CommandFunction = const Command& (*)();
std::span<const CommandFunction> commands();  // in the order of the help

}  // namespace tessera::cli
