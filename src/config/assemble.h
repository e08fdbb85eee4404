// Settings from several layers, the later ones winning. Owns: look-up of keys, precedence, unset
// sizes when a later preset replaces them. Not: files (load.cpp), rules between settings
// (complete.h).
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "base/file_system.h"
#include "config/load.h"
#include "config/mistakes.h"
#include "config/yaml_tree.h"

namespace tessera {

class Assembler {
 public:
  explicit Assembler(Mistakes& mistakes);

  // Settings of one file: groups of keys. Each call starts a new layer.
  void apply_file(const YamlNode& root, const Path& folder);
  // One group, as a file or an override gives it.
  void apply_group(std::string_view group, const YamlNode& node, const Path& folder);
  void apply_key(std::string_view key, const Place& key_place, const YamlNode& value,
                 const Path& folder);
  void reset(std::string_view key_or_group, const Place& place);  // back to the default
  void start_layer() { ++layer_; }

  // The values without those that a later, wider setting replaces.
  ResolvedConfig result();

 private:
  struct Setting {
    FieldValue value;
    int layer;
    Place place;
  };
  void unknown_key(std::string_view key, const Place& place);
  void drop_if_before(std::string_view wider, std::initializer_list<std::string_view> narrower);

  Mistakes& mistakes_;
  std::vector<std::optional<Setting>> settings_;  // one for each of fields()
  int layer_ = 0;
};

bool is_group(std::string_view name);

}  // namespace tessera
