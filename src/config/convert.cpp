#include "config/convert.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "base/error.h"
#include "base/registry.h"
#include "config/format.h"
#include "config/utf8.h"

namespace tessera {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// YAML 1.2's core schema without hexadecimal, octal, infinity and nan.
bool is_number(std::string_view text) {
  std::size_t i = !text.empty() && (text[0] == '-' || text[0] == '+') ? 1 : 0;
  std::size_t digits = 0;
  for (; i < text.size() && is_digit(text[i]); ++i) ++digits;
  if (i < text.size() && text[i] == '.') {
    for (++i; i < text.size() && is_digit(text[i]); ++i) ++digits;
  }
  if (digits == 0) return false;
  if (i < text.size() && (text[i] == 'e' || text[i] == 'E')) {
    ++i;
    if (i < text.size() && (text[i] == '-' || text[i] == '+')) ++i;
    if (i == text.size()) return false;
    while (i < text.size() && is_digit(text[i])) ++i;
  }
  return i == text.size();
}

// text is_number(); beyond the range of double: infinite, below it: 0.
double to_number(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  double value = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  if (result.ec != std::errc::result_out_of_range) return value;
  return std::strtod(std::string(text).c_str(), nullptr);
}

std::string shown(std::string_view text) {
  constexpr std::size_t kLongest = 60;
  std::string result(text.substr(0, kLongest));
  std::replace(result.begin(), result.end(), '\n', ' ');
  return "'" + result + (text.size() > kLongest ? "…'" : "'");
}

std::string joined(std::span<const std::string_view> names) {
  std::string text;
  for (const std::string_view name : names) text += (text.empty() ? "" : ", ") + std::string(name);
  return text;
}

std::string guess_hint(std::string_view text, std::span<const std::string_view> candidates) {
  const std::string_view guess = nearest(text, candidates);
  return guess.empty() ? "" : "Did you mean '" + std::string(guess) + "'?";
}

// One conversion; the members save every function from passing on the same five things.
class Converter {
 public:
  Converter(const Field& field, const Path& folder, Mistakes& mistakes)
      : field_(field), folder_(folder), mistakes_(mistakes) {}

  std::optional<FieldValue> value(const YamlNode& node) {
    if (node.is_null()) {
      wrong(node, "has no value", "Remove it for the default" + empty_hint());
      return std::nullopt;
    }
    if (field_.type == FieldType::kPaths) return paths(node);
    if (field_.type == FieldType::kPair) return pair(node);
    const std::optional<ExpandedText> text = scalar(node);
    return text ? from_text(node, *text) : std::nullopt;
  }

 private:
  void wrong(const YamlNode& node, std::string_view message, std::string_view hint = {}) {
    mistakes_.add(node.place, field_.key, message, hint);
  }

  std::string empty_hint() const {
    const std::string value = format_value(field_, Config());
    const bool text = field_.type == FieldType::kText;
    return " (" + value + ")" + (text ? ", or write \"\" for an empty text." : ".");
  }

  std::optional<ExpandedText> scalar(const YamlNode& node) {
    if (node.kind == YamlNode::Kind::kScalar) {
      const auto text = expand_environment(node, field_.key, mistakes_);
      quoted_ = node.quoted && text && !text->has_reference;
      return text;
    }
    const bool list = node.kind == YamlNode::Kind::kSequence;
    const bool countable = field_.type != FieldType::kBoolean &&
                           field_.type != FieldType::kCheckpointing &&
                           field_.type != FieldType::kText;
    const std::string_view article = !countable                            ? ""
                                     : field_.type == FieldType::kInterval ? "an "
                                                                           : "a ";
    wrong(node, "must be " + std::string(article) + std::string(to_string(field_.type)) +
                    ", not a " + (list ? "list" : "mapping"));
    return std::nullopt;
  }

  ExpandedText meant(ExpandedText text) {
    for (const Synonym& synonym : field_.synonyms) {
      if (text.text != synonym.written) continue;
      text.text = synonym.meant;
      quoted_ = false;  // it was a word, with or without quotes
      break;
    }
    return text;
  }

  std::optional<FieldValue> from_text(const YamlNode& node, const ExpandedText& written) {
    const ExpandedText text = meant(written);
    switch (field_.type) {
      case FieldType::kBoolean: return boolean(node, text.text);
      case FieldType::kInteger: return integer(node, text.text);
      case FieldType::kInterval: return interval(node, text.text);
      case FieldType::kChoice: return choice(node, text.text);
      case FieldType::kCheckpointing: return checkpointing(node, text.text);
      case FieldType::kReal:
        if (const auto value = number(node, text.text)) return FieldValue(*value);
        return std::nullopt;
      case FieldType::kPath:
        if (!accepted(node, text.text)) return std::nullopt;
        return FieldValue(path(text));
      default:
        if (!accepted(node, text.text)) return std::nullopt;
        return FieldValue(text.text);
    }
  }

  bool accepted(const YamlNode& node, std::string_view text) {
    const std::string reason = field_.check == nullptr ? "" : field_.check(text);
    if (!reason.empty()) wrong(node, reason);
    return reason.empty();
  }

  std::optional<FieldValue> boolean(const YamlNode& node, std::string_view text) {
    if (!quoted_ && text == "true") return FieldValue(true);
    if (!quoted_ && text == "false") return FieldValue(false);
    wrong(node, "must be true or false, not " + shown(text), quoted_ ? "Remove the quotes." : "");
    return std::nullopt;
  }

  bool plain_number(const YamlNode& node, std::string_view text, std::string_view wanted) {
    if (is_number(text) && !quoted_) return true;
    std::string hint;
    std::string bare(text);
    std::erase(bare, '_');
    std::erase(bare, ',');
    if (is_number(text)) {
      hint = "Remove the quotes.";
    } else if (is_number(bare)) {
      hint = "Write " + bare + ".";
    }
    wrong(node, "must be a " + std::string(wanted) + ", not " + shown(text), hint);
    return false;
  }

  bool in_range(const YamlNode& node, double value, std::string_view text) {
    const bool low = field_.min_allowed ? value >= field_.min : value > field_.min;
    const bool high = field_.max_allowed ? value <= field_.max : value < field_.max;
    if (low && high && std::isfinite(value)) return true;
    const std::string range = field_.range_text();
    wrong(node, "must be " + (range.empty() ? "finite" : range) + ", not " + shown(text));
    return false;
  }

  std::optional<double> number(const YamlNode& node, std::string_view text) {
    if (!plain_number(node, text, "number")) return std::nullopt;
    const double value = to_number(text);
    if (!in_range(node, value, text)) return std::nullopt;
    return value == 0 ? 0.0 : value;  // no negative zero
  }

  std::optional<FieldValue> integer(const YamlNode& node, std::string_view text) {
    if (!plain_number(node, text, "whole number")) return std::nullopt;
    const double value = to_number(text);
    if (value != std::rint(value)) {
      wrong(node, "must be a whole number, not " + shown(text));
      return std::nullopt;
    }
    if (!in_range(node, value, text)) return std::nullopt;
    return FieldValue(static_cast<std::int64_t>(value));  // exact: the table bounds it by 9e15
  }

  std::optional<FieldValue> interval(const YamlNode& node, std::string_view text) {
    const std::size_t space = std::min(text.find_first_of(" \t"), text.size());
    const std::string_view count = text.substr(0, space);
    std::string_view unit = text.substr(space);
    while (!unit.empty() && (unit.front() == ' ' || unit.front() == '\t')) unit.remove_prefix(1);
    const bool epochs = unit == "epochs" || unit == "epoch";
    const bool steps = unit.empty() || unit == "steps" || unit == "step";
    const double value = is_number(count) ? to_number(count) : -1;
    if (!is_number(count) || !(epochs || steps) || (steps && value != std::rint(value))) {
      wrong(node, "must be a number of steps, or text such as `3 epochs`, not " + shown(text));
      return std::nullopt;
    }
    if (!in_range(node, value, text)) return std::nullopt;
    if (value == 0) return FieldValue(Interval{});
    return FieldValue(Interval{value, epochs ? Interval::Unit::kEpochs : Interval::Unit::kSteps});
  }

  std::optional<FieldValue> checkpointing(const YamlNode& node, std::string_view text) {
    using Kind = ActivationCheckpointing::Kind;
    if (text == "none") return FieldValue(ActivationCheckpointing{});
    if (text == "selective") return FieldValue(ActivationCheckpointing{Kind::kSelective, 0});
    if (text == "full") return FieldValue(ActivationCheckpointing{Kind::kBlocks, 1});
    const double every = is_number(text) && !quoted_ ? to_number(text) : 0;
    if (every >= 1 && every <= 1e6 && every == std::rint(every)) {
      return FieldValue(ActivationCheckpointing{Kind::kBlocks, static_cast<std::int64_t>(every)});
    }
    constexpr std::string_view kNames[] = {"none", "selective", "full"};
    wrong(node,
          "must be none, selective, full, or N for every N-th block (a whole number from 1), not " +
              shown(text),
          guess_hint(text, kNames));
    return std::nullopt;
  }

  std::optional<FieldValue> choice(const YamlNode& node, const std::string& text) {
    if (!accepted(node, text)) return std::nullopt;
    const auto found = std::find(field_.choices.begin(), field_.choices.end(), text);
    if (found == field_.choices.end()) {
      wrong(node,
            (field_.choices.size() == 1 ? "must be " : "must be one of ") + joined(field_.choices) +
                ", not " + shown(text),
            guess_hint(text, field_.choices));
      return std::nullopt;
    }
    const bool is_index = std::holds_alternative<std::int64_t>(field_.get(Config()));
    if (is_index) return FieldValue(std::int64_t{found - field_.choices.begin()});
    return FieldValue(text);
  }

  std::optional<FieldValue> pair(const YamlNode& node) {
    if (node.kind != YamlNode::Kind::kSequence || node.items.size() != 2) {
      wrong(node, "must be a list of two numbers, such as [0.9, 0.95]");
      return std::nullopt;
    }
    std::array<double, 2> values{};
    for (std::size_t i = 0; i < 2; ++i) {
      const std::optional<ExpandedText> text = scalar(node.items[i]);
      const auto value = text ? number(node.items[i], text->text) : std::nullopt;
      if (!value) return std::nullopt;
      values[i] = *value;
    }
    return FieldValue(values);
  }

  std::optional<FieldValue> paths(const YamlNode& node) {
    std::vector<std::string> result;
    const bool list = node.kind == YamlNode::Kind::kSequence;
    for (const YamlNode& item : list ? node.items : std::vector<YamlNode>{node}) {
      const std::optional<ExpandedText> text = scalar(item);
      if (!text) return std::nullopt;
      if (text->text.empty() && !list) return FieldValue(result);
      if (text->text.empty()) {
        wrong(item, "a path is empty");
        return std::nullopt;
      }
      result.push_back(path(*text));
    }
    return FieldValue(result);
  }

  std::string path(const ExpandedText& text) {
    if (text.text.empty() || (field_.is_name != nullptr && field_.is_name(text.text))) {
      return text.text;
    }
    return absolute_path(text.text, text.starts_in_environment ? Path() : folder_).string();
  }

  const Field& field_;
  const Path& folder_;
  Mistakes& mistakes_;
  bool quoted_ = false;  // the scalar at hand
};

bool is_variable_name(std::string_view name) {
  if (name.empty() || is_digit(name.front())) return false;
  return std::all_of(name.begin(), name.end(), [](char c) {
    return is_digit(c) || c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  });
}

}  // namespace

std::optional<ExpandedText> expand_environment(const YamlNode& scalar, std::string_view key,
                                               Mistakes& mistakes) {
  ExpandedText result;
  const std::string_view text = scalar.text;
  for (std::size_t i = 0; i < text.size();) {
    if (text.substr(i, 3) == "$${") {
      result.text += "${";
      i += 3;
      continue;
    }
    if (text.substr(i, 2) != "${") {
      result.text += text[i++];
      continue;
    }
    const std::size_t end = text.find('}', i);
    const std::string_view inside = text.substr(i + 2, end == text.npos ? text.npos : end - i - 2);
    const std::size_t comma = inside.find(',');
    const std::string name(inside.starts_with("env:") ? inside.substr(4, comma - 4) : "");
    if (end == text.npos || !is_variable_name(name)) {
      mistakes.add(scalar.place, key, "cannot read the reference " + shown(text.substr(i)),
                   "Write ${env:NAME} or ${env:NAME,default}; $${ stands for ${ itself.");
      return std::nullopt;
    }
    if (const char* variable = std::getenv(name.c_str()); variable != nullptr) {
      result.starts_in_environment |= i == 0 && *variable != '\0';
      result.text += variable;
      result.has_reference = true;
    } else if (comma != inside.npos) {
      result.text += inside.substr(comma + 1);
      result.has_reference = true;
    } else {
      mistakes.add(scalar.place, key, "the environment variable " + name + " is not set",
                   "Set it, or write ${env:" + name + ",DEFAULT}.");
      return std::nullopt;
    }
    i = end + 1;
  }
  if (result.text.find('\0') != std::string::npos || !is_utf8(result.text)) {
    mistakes.add(scalar.place, key, "is not plain UTF-8 text");
    return std::nullopt;
  }
  return result;
}

Path absolute_path(std::string_view text, const Path& folder) {
  Path path(text);
  if (text == "~" || text.starts_with("~/")) {
    const char* home = std::getenv("HOME");
    if (home != nullptr && *home != '\0') {
      path = Path(home) / Path(text.substr(std::min<std::size_t>(2, text.size())));
    }
  }
  std::error_code error;
  path = std::filesystem::absolute(folder / path, error).lexically_normal();
  if (error) {
    throw Error(ErrorKind::kIo, "the working folder cannot be used: " + error.message(), {},
                "Change to a folder that exists.");
  }
  // "a/b/" and "a/b" are one path.
  if (!path.has_filename() && path.has_relative_path()) path = path.parent_path();
  return path;
}

std::optional<FieldValue> convert(const Field& field, const YamlNode& node, const Path& folder,
                                  Mistakes& mistakes) {
  return Converter(field, folder, mistakes).value(node);
}

}  // namespace tessera
