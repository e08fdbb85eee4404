#include "config/describe.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "config/config_guide.h"
#include "config/fields.h"
#include "config/format.h"

namespace tessera {
namespace {

using Json = nlohmann::ordered_json;

Json json_number(double value) {
  if (value == std::rint(value) && std::abs(value) < 1e15) {
    return static_cast<std::int64_t>(value);
  }
  return value;
}

Json bounds(const Field& field) {
  Json schema = Json::object();
  if (std::isfinite(field.min)) {
    schema[field.min_allowed ? "minimum" : "exclusiveMinimum"] = json_number(field.min);
  }
  if (std::isfinite(field.max)) {
    schema[field.max_allowed ? "maximum" : "exclusiveMaximum"] = json_number(field.max);
  }
  return schema;
}

Json json_default(const Field& field) {
  const FieldValue value = field.get(Config());
  if (const bool* flag = std::get_if<bool>(&value)) return *flag;
  if (const auto* pair = std::get_if<std::array<double, 2>>(&value)) return *pair;
  if (const auto* text = std::get_if<std::string>(&value)) return *text;
  if (const auto* texts = std::get_if<std::vector<std::string>>(&value)) return *texts;
  if (const double* number = std::get_if<double>(&value)) return json_number(*number);
  if (const auto* interval = std::get_if<Interval>(&value)) {
    if (interval->unit == Interval::Unit::kSteps) return json_number(interval->count);
    return format_interval(*interval);
  }
  if (field.type == FieldType::kChoice || field.type == FieldType::kCheckpointing) {
    return format_value(field, value);
  }
  return std::get<std::int64_t>(value);
}

// The JSON value that a scalar of YAML stands for.
Json plain_scalar(std::string_view text) {
  if (text == "true" || text == "false") return text == "true";
  return text;
}

// What a literal value may be; a reference to the environment may stand for any of them.
Json literal_schema(const Field& field) {
  Json schema = bounds(field);
  const Json path = {{"type", "string"}, {"minLength", 1}};
  switch (field.type) {
    case FieldType::kBoolean: return {{"type", "boolean"}};
    case FieldType::kInteger: schema["type"] = "integer"; return schema;
    case FieldType::kReal: schema["type"] = "number"; return schema;
    case FieldType::kChoice: {
      Json choices = Json::array();
      for (const std::string_view choice : field.choices) choices.push_back(plain_scalar(choice));
      for (const Synonym& synonym : field.synonyms) choices.push_back(synonym.written);
      if (field.key == "log.ranks") choices.push_back(0);
      return {{"enum", choices}};
    }
    case FieldType::kCheckpointing:
      return {{"anyOf",
               {{{"enum", {"none", "selective", "full"}}}, {{"type", "integer"}, {"minimum", 1}}}}};
    case FieldType::kPaths:
      return {{"anyOf", {{{"type", "string"}}, {{"type", "array"}, {"items", path}}}}};
    case FieldType::kPair:
      schema["type"] = "number";
      return {{"type", "array"}, {"items", schema}, {"minItems", 2}, {"maxItems", 2}};
    case FieldType::kInterval:
      schema["type"] = "integer";
      return {{"anyOf",
               {schema, {{"type", "string"}, {"pattern", "^[0-9.eE+-]+( +(steps?|epochs?))?$"}}}}};
    default: return {{"type", "string"}};
  }
}

// The value that `unset` describes: the default where that is such a value, else 0.
std::string unset_value(const Field& field) {
  const std::string value = format_value(field, Config());
  return field.type == FieldType::kInteger || field.type == FieldType::kReal ||
                 field.type == FieldType::kInterval
             ? (value.starts_with("-") ? value : "0")
             : value;
}

Json field_schema(const Field& field) {
  Json schema = literal_schema(field);
  const bool takes_text = schema.value("type", "") == "string" || field.type == FieldType::kPaths;
  if (!takes_text) {
    Json list = Json::array({schema, Json{{"$ref", "#/$defs/environment"}}});
    if (schema.contains("anyOf")) {
      list = schema["anyOf"];
      list.push_back(Json{{"$ref", "#/$defs/environment"}});
    }
    if (field.type != FieldType::kChoice && !field.synonyms.empty()) {
      Json texts = Json::array();
      for (const Synonym& synonym : field.synonyms) texts.push_back(plain_scalar(synonym.written));
      list.push_back(Json{{"enum", texts}});
    }
    schema = Json{{"anyOf", list}};
  }
  std::string doc(field.doc);
  if (!field.unit.empty()) doc += " In " + std::string(field.unit) + ".";
  if (!field.unset.empty()) {
    doc += " " + unset_value(field) + " stands for: " + std::string(field.unset) + ".";
  }
  schema["description"] = doc;
  schema["default"] = json_default(field);
  return schema;
}

// A '|' would end a table's cell.
std::string cell(std::string_view text) {
  std::string result;
  for (const char c : text) result += c == '|' ? "\\|" : std::string(1, c);
  return result;
}

std::string code(std::string_view text) { return "`" + std::string(text) + "`"; }

// What other software calls the key or its values.
std::string other_names(const Field& field) {
  std::string text;
  if (!field.alias.empty()) text += " Also written " + code(field.alias) + ".";
  if (field.type != FieldType::kChoice || field.synonyms.empty()) return text;
  std::string list;
  for (const Synonym& synonym : field.synonyms) {
    list += (list.empty() ? "" : ", ") + code(synonym.written) + " for " + code(synonym.meant);
  }
  return text + " Also read: " + list + ".";
}

std::string value_cell(const Field& field) {
  if (field.type == FieldType::kChoice) {
    std::string text;
    for (const std::string_view choice : field.choices) {
      text += (text.empty() ? "" : ", ") + code(choice);
    }
    return text;
  }
  std::string text(to_string(field.type));
  if (const std::string range = field.range_text(); !range.empty()) text += ", " + range;
  if (!field.unit.empty()) text += " (" + std::string(field.unit) + ")";
  return text;
}

std::string default_cell(const Field& field) {
  const std::string value = code(format_value(field, Config()));
  if (field.unset.empty()) return value;
  const std::string unset = code(unset_value(field));
  if (unset == value) return value + ": " + std::string(field.unset);
  return value + " (" + unset + ": " + std::string(field.unset) + ")";
}

}  // namespace

std::string config_json_schema() {
  Json groups = Json::object();
  groups["defaults"] = {{"description",
                         "Base files, merged in order before this one: paths, names of shipped "
                         "configs, or 'group: name'."},
                        {"anyOf", {{{"type", "string"}}, {{"type", "array"}}}}};
  for (const FieldGroup& group : field_groups()) {
    Json properties = Json::object();
    for (const Field& field : fields()) {
      if (field.group() != group.name) continue;
      properties[std::string(field.name())] = field_schema(field);
      if (field.alias.empty()) continue;
      const std::string alias(field.alias.substr(field.alias.find('.') + 1));
      properties[alias] = field_schema(field);
    }
    groups[std::string(group.name)] = {{"type", {"object", "null"}},
                                       {"description", group.doc},
                                       {"properties", properties},
                                       {"additionalProperties", false}};
  }
  const Json schema = {
      {"$schema", "https://json-schema.org/draft/2020-12/schema"},
      {"title", "Tessera configuration"},
      {"type", "object"},
      {"properties", groups},
      {"additionalProperties", false},
      {"$defs",
       {{"environment",
         {{"type", "string"}, {"pattern", "\\$\\{env:[A-Za-z_][A-Za-z0-9_]*(,[^}]*)?\\}"}}}}}};
  return schema.dump(2) + "\n";
}

std::string config_markdown_reference() {
  std::string text(kConfigGuide);
  for (const FieldGroup& group : field_groups()) {
    text += "\n### " + std::string(group.name) + "\n" + std::string(group.doc) + "\n\n";
    text += "| key | value | default | resume | what it does |\n|---|---|---|---|---|\n";
    for (const Field& field : fields()) {
      if (field.group() != group.name) continue;
      text += "| " + code(field.key) + " | " + cell(value_cell(field)) + " | " +
              cell(default_cell(field)) + " | " + std::string(to_string(field.resume)) + " | " +
              cell(std::string(field.doc) + other_names(field)) + " |\n";
    }
  }
  text +=
      "\n## Model presets\n\n| preset | n_embd | n_layer | n_head | n_positions |\n"
      "|---|---|---|---|---|\n";
  for (const ModelPreset& preset : model_presets()) {
    text += "| " + code(preset.name) + " | " + std::to_string(preset.n_embd) + " | " +
            std::to_string(preset.n_layer) + " | " + std::to_string(preset.n_head) + " | " +
            std::to_string(preset.n_positions) + " |\n";
  }
  return text;
}

}  // namespace tessera
