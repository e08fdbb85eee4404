// Values of settings as text. Owns: the notation of numbers, texts and lists that the parser reads
// back to the same value. Not: layout of a whole config (load.h).
#pragma once

#include <string>
#include <string_view>

#include "config/fields.h"

namespace tessera {

std::string format_number(double value);  // shortest that reads back exactly
std::string format_interval(const Interval& interval);
// As YAML: plain where that is unambiguous, in every context, else in double quotes.
std::string format_text(std::string_view text);
std::string format_value(const Field& field, const FieldValue& value);
std::string format_value(const Field& field, const Config& config);

}  // namespace tessera
