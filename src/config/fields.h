// What is known about every setting, declared once. Owns: the table that the parser, the JSON
// schema, the reference page, the saved record and the rules of a resume read. Not: rules between
// fields (load.h).
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "config/config.h"

namespace tessera {

// What a resume does when the setting differs from the run's own.
enum class ResumePolicy {
  kFree,    // takes the new value
  kWarn,    // takes the new value and says so: results will differ from those of the old one
  kRefuse,  // stops: it would be another run
};
std::string_view to_string(ResumePolicy policy);

enum class FieldType {
  kBoolean,
  kInteger,
  kReal,
  kText,
  kChoice,
  kPath,
  kPaths,
  kPair,
  kInterval,
  kCheckpointing,
};
std::string_view to_string(FieldType type);  // for people: "whole number", "list of paths"

// By FieldType: bool; int64; double; text; index into choices (an enum) or text; text; texts;
// two doubles; Interval; ActivationCheckpointing.
using FieldValue = std::variant<bool, std::int64_t, double, std::string, std::vector<std::string>,
                                std::array<double, 2>, Interval, ActivationCheckpointing>;

// Why a text does not fit, without a final stop; empty if it does.
using TextCheck = std::string (*)(std::string_view);

// A text that other software writes for a value.
struct Synonym {
  std::string_view written, meant;
};

struct Field {
  std::string_view key;         // "model.n_layer"
  std::string_view alias = {};  // another software's name for it: a whole key, or empty
  std::string_view doc = {};    // what it does; a sentence or two
  FieldType type = FieldType::kText;
  std::string_view unit = {};
  double min = -std::numeric_limits<double>::infinity();  // of the number, each of a pair, a count
  double max = std::numeric_limits<double>::infinity();
  bool min_allowed = true, max_allowed = true;
  std::span<const std::string_view> choices = {};
  std::span<const Synonym> synonyms = {};
  TextCheck check = nullptr;
  bool (*is_name)(std::string_view) = nullptr;  // of a path field: texts that are no path
  std::string_view unset = {};  // what 0, empty or -1 stands for, where it is not a value
  ResumePolicy resume = ResumePolicy::kFree;
  FieldValue (*get)(const Config&) = nullptr;
  void (*set)(Config&, const FieldValue&) = nullptr;  // the alternative that get returns

  std::string_view group() const { return key.substr(0, key.find('.')); }
  std::string_view name() const { return key.substr(key.find('.') + 1); }
  // "0 … 1", "> 0", "≥ 1"; empty: no limit.
  std::string range_text() const;
};

std::span<const Field> fields();                // grouped, in the order of a printed config
const Field* find_field(std::string_view key);  // by key or alias; nullptr: no such setting

struct FieldGroup {
  std::string_view name, doc;
};
std::span<const FieldGroup> field_groups();

}  // namespace tessera
