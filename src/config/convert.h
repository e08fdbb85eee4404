// From a YAML node to the value of a setting. Owns: types, ranges, choices, references to the
// environment, paths. Not: rules between settings.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/file_system.h"
#include "config/fields.h"
#include "config/mistakes.h"
#include "config/yaml_tree.h"

namespace tessera {

// The text of a scalar with `${env:NAME,default}` replaced and `$${` as `${`. Nothing where it is
// wrong, which is then in `mistakes`.
struct ExpandedText {
  std::string text;
  bool starts_in_environment = false;  // a variable's own value stands first
  bool has_reference = false;          // such a text may be a number although it is in quotes
};
std::optional<ExpandedText> expand_environment(const YamlNode& scalar, std::string_view key,
                                               Mistakes& mistakes);

// `text` as an absolute path without `.` and `..`: `~` is the home folder, a relative one is
// relative to `folder`, which is relative to the working folder.
Path absolute_path(std::string_view text, const Path& folder);  // Error{kIo}: no working folder

// The value for `field`, or nothing and a mistake. Relative paths are relative to `folder`; those
// that an environment variable begins are relative to the working folder.
std::optional<FieldValue> convert(const Field& field, const YamlNode& node, const Path& folder,
                                  Mistakes& mistakes);

}  // namespace tessera
