// How a row of the table in fields.cpp is written: a Field with setters that read as a sentence.
// Owns: type deduction and access through member pointers. Included by the table's files alone.
#pragma once

#include <type_traits>
#include <utility>

#include "config/fields.h"

namespace tessera {

template <class T>
constexpr FieldType field_type_of() {
  if constexpr (std::is_same_v<T, bool>) {
    return FieldType::kBoolean;
  } else if constexpr (std::is_same_v<T, std::int64_t>) {
    return FieldType::kInteger;
  } else if constexpr (std::is_same_v<T, double>) {
    return FieldType::kReal;
  } else if constexpr (std::is_same_v<T, std::string>) {
    return FieldType::kText;
  } else if constexpr (std::is_same_v<T, std::vector<std::string>>) {
    return FieldType::kPaths;
  } else if constexpr (std::is_same_v<T, std::array<double, 2>>) {
    return FieldType::kPair;
  } else if constexpr (std::is_same_v<T, Interval>) {
    return FieldType::kInterval;
  } else if constexpr (std::is_same_v<T, ActivationCheckpointing>) {
    return FieldType::kCheckpointing;
  } else {
    static_assert(std::is_enum_v<T>);
    return FieldType::kChoice;
  }
}

template <auto kGroup, auto kMember>
FieldValue get_field(const Config& config) {
  const auto& value = config.*kGroup.*kMember;
  using T = std::remove_cvref_t<decltype(value)>;
  if constexpr (std::is_enum_v<T>) {
    return static_cast<std::int64_t>(value);
  } else {
    return value;
  }
}

template <auto kGroup, auto kMember>
void set_field(Config& config, const FieldValue& value) {
  auto& target = config.*kGroup.*kMember;
  using T = std::remove_reference_t<decltype(target)>;
  if constexpr (std::is_enum_v<T>) {
    target = static_cast<T>(std::get<std::int64_t>(value));
  } else {
    target = std::get<T>(value);
  }
}

struct FieldRow : Field {
  constexpr FieldRow at_least(double value) { return min = value, *this; }
  constexpr FieldRow above(double value) { return min = value, min_allowed = false, *this; }
  constexpr FieldRow at_most(double value) { return max = value, *this; }
  constexpr FieldRow below(double value) { return max = value, max_allowed = false, *this; }
  constexpr FieldRow in(std::string_view text) { return unit = text, *this; }
  constexpr FieldRow path() { return type = FieldType::kPath, *this; }
  constexpr FieldRow or_name(bool (*names)(std::string_view)) { return is_name = names, *this; }
  constexpr FieldRow checked(TextCheck function) { return check = function, *this; }
  constexpr FieldRow also(std::span<const Synonym> texts) { return synonyms = texts, *this; }
  constexpr FieldRow or_key(std::string_view name) { return alias = name, *this; }
  constexpr FieldRow unset_is(std::string_view text) { return unset = text, *this; }
  constexpr FieldRow warn() { return resume = ResumePolicy::kWarn, *this; }
  constexpr FieldRow refuse() { return resume = ResumePolicy::kRefuse, *this; }
  constexpr FieldRow one_of(std::span<const std::string_view> names) {
    return type = FieldType::kChoice, choices = names, *this;
  }
};

template <auto kGroup, auto kMember>
constexpr FieldRow row(std::string_view key, std::string_view doc) {
  using T = std::remove_cvref_t<decltype(std::declval<const Config&>().*kGroup.*kMember)>;
  FieldRow result;
  result.key = key;
  result.doc = doc;
  result.type = field_type_of<T>();
  result.get = get_field<kGroup, kMember>;
  result.set = set_field<kGroup, kMember>;
  return result;
}

}  // namespace tessera
