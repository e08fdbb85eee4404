// The program's own files. Owns: where it lies, the shipped configs, the version.
#pragma once

#include <string_view>

#include "base/file_system.h"

namespace tessera::cli {

Path program_path();        // of the running binary
Path shipped_config_dir();  // beside an installed program, else in the sources; empty: none found
std::string_view version();

// Writes "error: message" to stderr; of a message with several lines, "error: " stands before the
// last, which is the cause. Where a launcher reads errors from a file (TORCHELASTIC_ERROR_FILE), it
// is written there, too.
void print_error(const std::string& message);

}  // namespace tessera::cli
