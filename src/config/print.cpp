// A resolved config as text, and the difference of two.
#include "config/format.h"
#include "config/load.h"

namespace tessera {
namespace {

std::size_t index_of(const Field& field) {
  return static_cast<std::size_t>(&field - fields().data());
}

// A comment is one line of printable text.
std::string comment(std::string_view text) {
  std::string result = "  # ";
  for (const char c : text) {
    result += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? ' ' : c;
  }
  return result;
}

std::string line(const Field& field, const Config& config, const Origin& origin, bool mark) {
  const std::string value = format_value(field, config);
  const bool unset = origin.print_unset;
  std::string text =
      "  " + std::string(field.name()) + ": " + (unset ? format_value(field, Config()) : value);
  if (mark && origin.kind == Origin::Kind::kGiven) text += comment(origin.where);
  if (mark && origin.kind == Origin::Kind::kDerived) {
    text += comment((unset ? value + ", from " : "from ") + origin.where);
  }
  return text + "\n";
}

}  // namespace

std::string ResolvedConfig::where(std::string_view key) const {
  const Field* field = find_field(key);
  std::string text(key);
  if (field == nullptr) return text;
  const Origin& origin = origins[index_of(*field)];
  return origin.kind == Origin::Kind::kGiven ? origin.where + ": " + text : text;
}

std::string ResolvedConfig::yaml(bool mark_origins) const {
  std::string text;
  std::string_view group;
  for (const Field& field : fields()) {
    if (field.group() != group) {
      group = field.group();
      text += std::string(group) + ":\n";
    }
    text += line(field, config, origins[index_of(field)], mark_origins);
  }
  return text;
}

std::vector<ConfigDifference> compare_configs(const Config& old_config, const Config& new_config) {
  std::vector<ConfigDifference> differences;
  for (const Field& field : fields()) {
    const FieldValue old_value = field.get(old_config), new_value = field.get(new_config);
    if (old_value == new_value) continue;
    differences.push_back(
        {field.key, format_value(field, old_value), format_value(field, new_value), field.resume});
  }
  return differences;
}

}  // namespace tessera
