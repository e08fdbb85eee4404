// JSON texts that carry their own checksum as last member, so that any flipped bit in them is
// noticed.
#pragma once

#include <string>
#include <string_view>

#include "base/file_system.h"

namespace tessera {

// `json` is a non-empty object "{…}"; the result is the object with one more member, "checksum".
std::string seal_json(std::string_view json);

// Checks a sealed text and returns it as it is. Error{kCorrupt} that names `path`.
std::string_view check_seal(std::string_view text, const Path& path);

}  // namespace tessera
