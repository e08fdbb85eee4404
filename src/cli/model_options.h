// Options that evaluate and generate share.
#pragma once

#include <string>

#include "cli/command.h"

namespace tessera::cli {

OptionGroup device_options();                           // --device, --precision
OptionGroup result_options();                           // --json, -q, -v
std::string device_option(const Arguments& arguments);  // Error{kUsage}: no device

}  // namespace tessera::cli
