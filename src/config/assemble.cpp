#include "config/assemble.h"

#include <algorithm>

#include "base/registry.h"
#include "config/convert.h"

namespace tessera {
namespace {

std::string did_you_mean(std::string_view name) {
  return "Did you mean '" + std::string(name) + "'?";
}

std::size_t index_of(const Field& field) {
  return static_cast<std::size_t>(&field - fields().data());
}

}  // namespace

bool is_group(std::string_view name) {
  for (const FieldGroup& group : field_groups()) {
    if (group.name == name) return true;
  }
  return false;
}

Assembler::Assembler(Mistakes& mistakes) : mistakes_(mistakes), settings_(fields().size()) {}

void Assembler::apply_file(const YamlNode& root, const Path& folder) {
  start_layer();
  for (const YamlEntry& entry : root.entries) {
    if (entry.key == "defaults") continue;
    if (is_group(entry.key)) {
      apply_group(entry.key, entry.value, folder);
    } else if (find_field(entry.key) != nullptr) {
      const Field& field = *find_field(entry.key);
      mistakes_.add(entry.place, entry.key, "a setting stands in its group",
                    "Write '" + std::string(field.group()) + ":' and below it, indented, '" +
                        std::string(field.name()) + ": …'.");
    } else {
      unknown_key(entry.key, entry.place);
    }
  }
}

void Assembler::apply_group(std::string_view group, const YamlNode& node, const Path& folder) {
  if (node.is_null()) return;  // a group whose lines are all comments
  if (node.kind != YamlNode::Kind::kMapping) {
    mistakes_.add(node.place, group, "must be a group of settings, one 'key: value' a line");
    return;
  }
  std::vector<const Field*> seen;  // one setting under two names would be given twice
  for (const YamlEntry& entry : node.entries) {
    const std::string key = std::string(group) + "." + entry.key;
    const Field* field = find_field(key);
    if (field != nullptr && std::ranges::find(seen, field) != seen.end()) {
      mistakes_.add(
          entry.place, key, "is given twice, also by its other name",
          "Keep one of " + std::string(field->key) + " and " + std::string(field->alias) + ".");
      continue;
    }
    seen.push_back(field);
    apply_key(key, entry.place, entry.value, folder);
  }
}

void Assembler::apply_key(std::string_view key, const Place& key_place, const YamlNode& value,
                          const Path& folder) {
  const Field* field = find_field(key);
  if (field == nullptr) return unknown_key(key, key_place);
  std::optional<FieldValue> converted = convert(*field, value, folder, mistakes_);
  if (converted) settings_[index_of(*field)] = Setting{std::move(*converted), layer_, key_place};
}

void Assembler::reset(std::string_view key_or_group, const Place& place) {
  if (find_field(key_or_group) == nullptr && !is_group(key_or_group)) {
    return unknown_key(key_or_group, place);
  }
  for (const Field& field : fields()) {
    if (&field == find_field(key_or_group) || field.group() == key_or_group) {
      settings_[index_of(field)].reset();
    }
  }
}

void Assembler::unknown_key(std::string_view key, const Place& place) {
  const std::size_t dot = key.find('.');
  const std::string_view group = key.substr(0, dot);
  const std::string_view name = dot == key.npos ? key : key.substr(dot + 1);
  if (key.ends_with("<<")) {
    return mistakes_.add(place, key, "merge keys are not read",
                         "Name a base file under 'defaults:'.");
  }
  std::vector<std::string_view> in_group, groups, all;
  for (const Field& field : fields()) {
    if (field.group() == group) in_group.push_back(field.name());
    all.push_back(field.key);
  }
  for (const FieldGroup& known : field_groups()) groups.push_back(known.name);
  const std::string what = dot == key.npos ? "unknown group" : "unknown key";
  if (is_group(group)) {
    const std::string_view guess = nearest(name, in_group);
    // "train.lr": right name, wrong group; unless the own group has something as near.
    if (guess.empty() || edit_distance(guess, name) > 1) {
      for (const Field& field : fields()) {
        if (field.name() == name) return mistakes_.add(place, key, what, did_you_mean(field.key));
      }
    }
    if (!guess.empty()) {
      return mistakes_.add(place, key, what,
                           did_you_mean(std::string(group) + "." + std::string(guess)));
    }
    std::string list;
    for (const std::string_view known : in_group)
      list += (list.empty() ? "" : ", ") + std::string(known);
    return mistakes_.add(place, key, what, "Keys of " + std::string(group) + ": " + list + ".");
  }
  for (const Field& field : fields()) {
    if (field.name() == name) return mistakes_.add(place, key, what, did_you_mean(field.key));
  }
  std::string_view guess = dot == key.npos ? nearest(key, groups) : nearest(key, all);
  if (!guess.empty()) return mistakes_.add(place, key, what, did_you_mean(guess));
  std::string list;
  for (const std::string_view known : groups)
    list += (list.empty() ? "" : ", ") + std::string(known);
  mistakes_.add(place, key, what, "Groups: " + list + ".");
}

void Assembler::drop_if_before(std::string_view wider,
                               std::initializer_list<std::string_view> narrower) {
  const std::optional<Setting>& winner = settings_[index_of(*find_field(wider))];
  if (!winner) return;
  for (const std::string_view key : narrower) {
    std::optional<Setting>& setting = settings_[index_of(*find_field(key))];
    if (setting && setting->layer < winner->layer) setting.reset();
  }
}

ResolvedConfig Assembler::result() {
  drop_if_before("model.preset",
                 {"model.n_layer", "model.n_head", "model.n_embd", "model.n_positions"});
  drop_if_before("model.dropout",
                 {"model.embd_dropout", "model.attn_dropout", "model.resid_dropout"});
  ResolvedConfig result;
  result.origins.resize(fields().size());
  for (const Field& field : fields()) {
    const std::optional<Setting>& setting = settings_[index_of(field)];
    if (!setting) continue;
    field.set(result.config, setting->value);
    result.origins[index_of(field)] = {Origin::Kind::kGiven, to_string(setting->place), false};
  }
  return result;
}

}  // namespace tessera
