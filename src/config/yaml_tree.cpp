#include "config/yaml_tree.h"

#include <yaml.h>

#include <map>
#include <utility>

#include "config/utf8.h"

namespace tessera {
namespace {

struct StopReading {};  // thrown inside this file after a mistake that leaves nothing to read on

// libyaml looks for no byte order mark where it is told the encoding; editors on Windows write one.
std::string_view without_mark(std::string_view text) {
  return text.substr(text.starts_with("\xEF\xBB\xBF") ? 3 : 0);
}

class Parser {
 public:
  Parser(std::string_view text, const std::string& file, Mistakes& mistakes, bool whole_place)
      : file_(file), mistakes_(mistakes), whole_place_(whole_place), text_(without_mark(text)) {
    if (yaml_parser_initialize(&parser_) == 0) throw std::bad_alloc();
    yaml_parser_set_input_string(&parser_, reinterpret_cast<const unsigned char*>(text_.data()),
                                 text_.size());
    yaml_parser_set_encoding(&parser_, YAML_UTF8_ENCODING);
  }
  ~Parser() { yaml_parser_delete(&parser_); }
  Parser(const Parser&) = delete;
  Parser& operator=(const Parser&) = delete;

  YamlNode document() {
    next();  // stream start
    next();
    YamlNode root;
    root.kind = YamlNode::Kind::kMapping;
    root.place = place();
    if (event_.get().type == YAML_STREAM_END_EVENT) return root;
    next();  // past document start
    root = node(0);
    next();  // document end
    next();
    if (event_.get().type != YAML_STREAM_END_EVENT) {
      mistakes_.add(place(), "", "a second document starts here; a config is one document",
                    "Remove the line '---'.");
    }
    return root;
  }

 private:
  // Frees what libyaml allocated, whichever way the reading ends.
  class Event {
   public:
    ~Event() { clear(); }
    yaml_event_t& get() { return event_; }
    void clear() {
      if (live_) yaml_event_delete(&event_);
      live_ = false;
    }
    void mark_live() { live_ = true; }

   private:
    yaml_event_t event_ = {};
    bool live_ = false;
  };

  struct Anchor {
    YamlNode node;
    int nodes;
  };

  Place at(const yaml_mark_t& mark) const {
    if (whole_place_) return {file_, 0, 0};
    return {file_, static_cast<int>(mark.line) + 1, static_cast<int>(mark.column) + 1};
  }
  Place place() { return at(event_.get().start_mark); }

  void next() {
    event_.clear();
    if (yaml_parser_parse(&parser_, &event_.get()) == 0) syntax_error();
    event_.mark_live();
  }

  [[noreturn]] void syntax_error() {
    if (parser_.error == YAML_MEMORY_ERROR) throw std::bad_alloc();
    const yaml_mark_t& mark = parser_.problem_mark;
    std::string message = parser_.problem != nullptr ? parser_.problem : "cannot be read";
    std::string hint;
    if (mark.index < text_.size() && character(mark) == '\t') {
      message = "a tab where YAML needs spaces";
      hint = "Indent with spaces.";
    } else if (message == "did not find expected key" ||
               message == "mapping values are not allowed in this context") {
      hint =
          "Check the indentation of this line and the one before, and quote texts that hold ': '.";
    } else if (parser_.context != nullptr) {
      message += std::string(", ") + parser_.context;
      if (!whole_place_) message += " at line " + std::to_string(parser_.context_mark.line + 1);
    }
    mistakes_.add(at(mark), "", "not valid YAML: " + message, hint);
    throw StopReading();
  }

  // libyaml counts characters, not bytes.
  char character(const yaml_mark_t& mark) const {
    std::size_t line = 0, i = 0;
    while (i < text_.size() && line < mark.line) line += text_[i++] == '\n' ? 1 : 0;
    for (std::size_t column = 0; i < text_.size() && column < mark.column; ++column) {
      i += decode_utf8(text_.substr(i)).bytes;
    }
    return i < text_.size() ? text_[i] : '\0';
  }

  void count(int nodes) {
    nodes_ += nodes;
    if (nodes_ <= kMaxYamlNodes) return;
    mistakes_.add(place(), "",
                  "more than " + std::to_string(kMaxYamlNodes) +
                      " values, with aliases expanded; this is no config");
    throw StopReading();
  }

  void no_tag(const unsigned char* tag, const Place& where) {
    if (tag == nullptr) return;
    mistakes_.add(
        where, "",
        "the tag '" + std::string(reinterpret_cast<const char*>(tag)) + "' is not used here",
        "Remove it; quotes make a value text.");
  }

  // The node whose first event is event_. Recursion is bounded by kMaxYamlDepth.
  YamlNode node(int depth) {
    if (depth > kMaxYamlDepth) {
      mistakes_.add(place(), "", "nested more than " + std::to_string(kMaxYamlDepth) + " deep");
      throw StopReading();
    }
    const int before = nodes_;
    count(1);
    YamlNode result;
    result.place = place();
    std::string anchor;
    const auto text_of = [](const unsigned char* text) {
      return text == nullptr ? std::string() : std::string(reinterpret_cast<const char*>(text));
    };
    switch (event_.get().type) {
      case YAML_ALIAS_EVENT: return alias(text_of(event_.get().data.alias.anchor), result.place);
      case YAML_SCALAR_EVENT: {
        const auto& scalar = event_.get().data.scalar;
        no_tag(scalar.tag, result.place);
        anchor = text_of(scalar.anchor);
        result.text.assign(reinterpret_cast<const char*>(scalar.value), scalar.length);
        result.quoted = scalar.style != YAML_PLAIN_SCALAR_STYLE;
        break;
      }
      case YAML_SEQUENCE_START_EVENT:
        no_tag(event_.get().data.sequence_start.tag, result.place);
        anchor = text_of(event_.get().data.sequence_start.anchor);
        result.kind = YamlNode::Kind::kSequence;
        for (next(); event_.get().type != YAML_SEQUENCE_END_EVENT; next()) {
          result.items.push_back(node(depth + 1));
        }
        break;
      case YAML_MAPPING_START_EVENT:
        no_tag(event_.get().data.mapping_start.tag, result.place);
        anchor = text_of(event_.get().data.mapping_start.anchor);
        result.kind = YamlNode::Kind::kMapping;
        for (next(); event_.get().type != YAML_MAPPING_END_EVENT; next()) entry(result, depth);
        break;
      default: throw StopReading();  // libyaml's grammar leaves no other event here
    }
    if (!anchor.empty()) anchors_.insert_or_assign(anchor, Anchor{result, nodes_ - before});
    return result;
  }

  YamlNode alias(const std::string& name, const Place& where) {
    const auto found = anchors_.find(name);
    if (found == anchors_.end()) {
      mistakes_.add(where, "", "the alias '*" + name + "' has no anchor '&" + name + "' before it",
                    "Quote the text if it is not meant as an alias.");
      throw StopReading();
    }
    count(found->second.nodes);
    return found->second.node;
  }

  void entry(YamlNode& mapping, int depth) {
    YamlEntry result;
    const YamlNode key = node(depth + 1);
    next();
    result.value = node(depth + 1);
    result.place = key.place;
    result.key = key.text;
    if (key.kind != YamlNode::Kind::kScalar || key.text.empty()) {
      mistakes_.add(key.place, "", "a key must be a name");
    } else if (const YamlEntry* earlier = find_entry(mapping, key.text); earlier != nullptr) {
      mistakes_.add(
          key.place, key.text,
          "given twice" + (whole_place_ ? std::string()
                                        : ", first in line " + std::to_string(earlier->place.line)),
          "Remove one of them.");
    } else {
      mapping.entries.push_back(std::move(result));
    }
  }

  static const YamlEntry* find_entry(const YamlNode& mapping, std::string_view key) {
    for (const YamlEntry& entry : mapping.entries) {
      if (entry.key == key) return &entry;
    }
    return nullptr;
  }

  const std::string& file_;
  Mistakes& mistakes_;
  const bool whole_place_;
  const std::string_view text_;
  yaml_parser_t parser_ = {};
  Event event_;
  int nodes_ = 0;
  std::map<std::string, Anchor, std::less<>> anchors_;
};

// Binary files and other encodings are named as such, before libyaml stumbles over them.
bool check_text(std::string_view text, const std::string& file, Mistakes& mistakes) {
  Place place = {file, 1, 1};
  for (std::size_t i = 0; i < text.size();) {
    const CodePoint c = decode_utf8(text.substr(i));
    const bool control =
        (c.value < 0x20 && c.value != '\n' && c.value != '\r' && c.value != '\t') ||
        c.value == 0x7f || (c.value > 0x7f && c.value < 0xa0 && c.value != 0x85) ||
        c.value == 0xfffe || c.value == 0xffff || (c.value == 0xfeff && i > 0);
    if (!c.valid || control) {
      mistakes.add(place, "",
                   c.valid ? "a control character; this is not a text file"
                           : "not UTF-8; this is not a text file, or one in another "
                             "encoding");
      return false;
    }
    place.line += c.value == '\n' ? 1 : 0;
    place.column = c.value == '\n' ? 1 : place.column + 1;
    i += c.bytes;
  }
  return true;
}

}  // namespace

bool YamlNode::is_null() const {
  return kind == Kind::kScalar && !quoted && (text.empty() || text == "~" || text == "null");
}

const YamlNode* YamlNode::find(std::string_view key) const {
  for (const YamlEntry& entry : entries) {
    if (entry.key == key) return &entry.value;
  }
  return nullptr;
}

std::optional<YamlNode> parse_yaml(std::string_view text, const std::string& file,
                                   Mistakes& mistakes, bool whole_place) {
  if (!check_text(text, file, mistakes)) return std::nullopt;
  try {
    return Parser(text, file, mistakes, whole_place).document();
  } catch (const StopReading&) {
    return std::nullopt;
  }
}

}  // namespace tessera
