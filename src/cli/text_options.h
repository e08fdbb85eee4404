// Options that say what text files are; prepare, tokenizer train and evaluate share them.
#pragma once

#include <vector>

#include "cli/command.h"
#include "config/config.h"

namespace tessera::cli {

std::vector<Option> text_options();  // --format, --text-field, --text-column

// Those of `data` that the options say otherwise.
void apply_text_options(const Arguments& arguments, DataConfig& data);

}  // namespace tessera::cli
