// From files and overrides to a Config. Owns: composition, origins, rules between settings, the
// printed config, comparison of two configs. Not: single values (convert.h).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file_system.h"
#include "config/config.h"
#include "config/fields.h"

namespace tessera {

// What a command line says about the configuration.
struct ConfigSource {
  std::string config;                   // a path, or the name of a shipped config ("quickstart")
  std::vector<std::string> overrides;   // a.b=c, ~a.b, group=FILE; see docs/config.md
  std::optional<Path> config_dir = {};  // searched before the config's folder and shipped_dir
  Path shipped_dir = {};                // the folder of shipped configs; empty: none
};

// Where a value comes from.
struct Origin {
  enum class Kind { kDefault, kDerived, kGiven };
  Kind kind = Kind::kDefault;
  std::string where;  // kGiven: "train.yaml:3:5", "override 'optim.lr=1'"; kDerived: "model.preset"
  // A derived value is printed as unset, so that a config that is based on the printed one still
  // follows the setting it derives from. Not so for sizes: see Assembler::result().
  bool print_unset = false;
};

struct ResolvedConfig {
  Config config;
  std::vector<Origin> origins;  // one for each of fields()

  // For Error::where() and messages: "train.yaml:3:5: data.train"; the key alone for a default.
  std::string where(std::string_view key) const;
  // The whole config in a fixed order, readable by config_from_yaml() and as a config file; with
  // marks, a comment names the origin of every value that is not a default.
  std::string yaml(bool mark_origins = true) const;
};

// Reads, composes, overrides, checks and completes. Error{kConfig} lists everything that is wrong;
// Error{kIo} where the working folder cannot be used.
ResolvedConfig load_config(const ConfigSource& source);

// Reads back what ResolvedConfig::yaml() wrote. `file` names the text in errors.
Config config_from_yaml(std::string_view text, const std::string& file);

// A setting whose value differs, in the order of fields().
struct ConfigDifference {
  std::string_view key;
  std::string old_value, new_value;
  ResumePolicy policy;
};
std::vector<ConfigDifference> compare_configs(const Config& old_config, const Config& new_config);

// A shipped config, as `config ls` shows it.
struct ShippedConfig {
  std::string name;  // "quickstart", "model/gpt2"
  Path path;
  std::string summary;  // its first line, a comment
};
std::vector<ShippedConfig> list_configs(const Path& folder);  // sorted by name, groups last

// The file that `name` means: a path, or a name under one of `folders` (with or without `.yaml`).
// Error{kConfig} naming the nearest one.
Path find_config(const std::string& name, const std::vector<Path>& folders);

}  // namespace tessera
