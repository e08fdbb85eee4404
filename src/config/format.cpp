#include "config/format.h"

#include <charconv>
#include <cmath>
#include <cstdio>

#include "config/utf8.h"

namespace tessera {
namespace {

// Words that a YAML reader, this one or another, takes for something else than text.
bool is_reserved_word(std::string_view text) {
  for (const std::string_view word :
       {"true", "false", "null", "yes", "no", "on", "off", "y", "n", "~"}) {
    if (text.size() != word.size()) continue;
    bool same = true;
    for (std::size_t i = 0; i < word.size(); ++i) same &= (text[i] | 0x20) == (word[i] | 0x20);
    if (same) return true;
  }
  return false;
}

// What a YAML reader refuses inside quotes, or takes for a line break.
bool needs_escape(char32_t c) {
  return c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0x2028 || c == 0x2029 || c == 0xfeff ||
         c == 0xfffe || c == 0xffff;
}

bool is_plain_text(std::string_view text) {
  if (text.empty() || is_reserved_word(text)) return false;
  const char first = text.front();
  const bool letter = (first >= 'a' && first <= 'z') || (first >= 'A' && first <= 'Z') ||
                      first == '/' || first == '_';
  if (!letter) return false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const bool simple = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                        (c >= '0' && c <= '9') || std::string_view("_-./+*").find(c) != text.npos ||
                        (c == ':' && i + 1 < text.size() && text[i + 1] != ' ') ||
                        (c == ' ' && i + 1 < text.size());
    if (!simple) return false;
    if (c == ' ' && text[i - 1] == ':') return false;
  }
  return true;
}

}  // namespace

std::string format_number(double value) {
  char buffer[40];
  const bool whole = std::abs(value) < 1e15 && std::abs(value) >= 1e-3 && value == std::rint(value);
  const auto result =
      whole ? std::to_chars(buffer, buffer + sizeof buffer, static_cast<long long>(value))
            : std::to_chars(buffer, buffer + sizeof buffer, value);
  std::string text(buffer, result.ptr);
  // 3e-4, as people write it, not 3e-04.
  const std::size_t exponent = text.find('e');
  if (exponent != text.npos && text[exponent + 2] == '0') text.erase(exponent + 2, 1);
  return text;
}

std::string format_interval(const Interval& interval) {
  std::string text = format_number(interval.count);
  if (interval.unit == Interval::Unit::kEpochs) text += " epochs";
  return text;
}

std::string format_text(std::string_view text) {
  if (is_plain_text(text)) return std::string(text);
  std::string quoted = "\"";
  for (std::size_t i = 0; i < text.size();) {
    const CodePoint c = decode_utf8(text.substr(i));
    if (c.value == '"' || c.value == '\\') {
      quoted += '\\';
      quoted += text[i];
    } else if (c.value == '\n') {
      quoted += "\\n";
    } else if (needs_escape(c.value)) {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\u%04x", static_cast<unsigned>(c.value));
      quoted += escape;
    } else if (text.substr(i, 2) == "${") {
      quoted += "$$";  // else it would be read as a reference to the environment
    } else {
      quoted += text.substr(i, c.bytes);
    }
    i += c.bytes;
  }
  return quoted + "\"";
}

namespace {

// Readers of YAML 1.1 take 1e-05 for a text, and 1.0e-05 for a number.
std::string yaml_number(double value) {
  std::string text = format_number(value);
  const std::size_t exponent = text.find('e');
  if (exponent != text.npos && text.find('.') == text.npos) text.insert(exponent, ".0");
  return text;
}

}  // namespace

std::string format_value(const Field& field, const FieldValue& value) {
  struct Visitor {
    const Field& field;
    std::string operator()(bool v) const { return v ? "true" : "false"; }
    std::string operator()(std::int64_t v) const {
      if (field.type != FieldType::kChoice) return std::to_string(v);
      return std::string(field.choices[static_cast<std::size_t>(v)]);
    }
    std::string operator()(double v) const { return yaml_number(v); }
    std::string operator()(const std::string& v) const { return format_text(v); }
    std::string operator()(const std::vector<std::string>& v) const {
      if (v.size() == 1) return format_text(v.front());
      std::string text;
      for (const std::string& item : v) text += (text.empty() ? "" : ", ") + format_text(item);
      return "[" + text + "]";
    }
    std::string operator()(const std::array<double, 2>& v) const {
      return "[" + yaml_number(v[0]) + ", " + yaml_number(v[1]) + "]";
    }
    std::string operator()(const Interval& v) const { return format_interval(v); }
    std::string operator()(const ActivationCheckpointing& v) const {
      using Kind = ActivationCheckpointing::Kind;
      if (v.kind == Kind::kNone) return "none";
      if (v.kind == Kind::kSelective) return "selective";
      return v.every == 1 ? "full" : std::to_string(v.every);
    }
  };
  return std::visit(Visitor{field}, value);
}

std::string format_value(const Field& field, const Config& config) {
  return format_value(field, field.get(config));
}

}  // namespace tessera
