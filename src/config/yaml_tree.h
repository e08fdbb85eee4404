// A YAML document as a tree whose nodes know their place. Owns: reading with libyaml, limits
// against hostile input. Not: what keys and values mean.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/mistakes.h"

namespace tessera {

struct YamlEntry;

struct YamlNode {
  enum class Kind { kScalar, kSequence, kMapping };
  Kind kind = Kind::kScalar;
  std::string text;     // of a scalar
  bool quoted = false;  // a scalar in quotes or as a block: text, never a number or null
  Place place;
  std::vector<YamlNode> items;     // of a sequence
  std::vector<YamlEntry> entries;  // of a mapping, in the order of the file, keys unique

  // A plain empty scalar, `null` or `~`.
  bool is_null() const;
  const YamlNode* find(std::string_view key) const;  // in a mapping; nullptr: not there
};

struct YamlEntry {
  std::string key;
  Place place;
  YamlNode value;
};

// The only document of `text`; a mapping without entries for an empty text. What is wrong (syntax,
// duplicate keys, tags, several documents, not UTF-8, more than kMaxYamlNodes nodes with aliases
// expanded, nesting beyond kMaxYamlDepth) goes to `mistakes`, with `file` as its place; after a
// syntax error the result is empty, after the others what could be read.
// With `whole_place` every place is `file` alone, for texts that are no file.
std::optional<YamlNode> parse_yaml(std::string_view text, const std::string& file,
                                   Mistakes& mistakes, bool whole_place = false);

inline constexpr int kMaxYamlDepth = 16;
inline constexpr int kMaxYamlNodes = 10000;

}  // namespace tessera
