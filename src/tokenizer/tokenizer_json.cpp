#include "tokenizer/tokenizer_json.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/error.h"

namespace tessera {
namespace {

using Json = nlohmann::json;

Error corrupt(const Path& file, const std::string& why, std::string what_to_do = {}) {
  return Error(ErrorKind::kCorrupt, "cannot read the tokenizer: " + why, file.string(),
               std::move(what_to_do));
}

Error unsupported(const Path& file, const std::string& what) {
  return corrupt(
      file, what + ", which GPT-2's byte-level BPE does not have",
      "Tessera reads byte-level BPE as GPT-2 has it; convert the text with the tokenizer's own "
      "program, or train one with `tessera tokenizer train`.");
}

// Where an event of the parser lies: the keys that lead to it.
class PathReader : public nlohmann::json_sax<Json> {
 public:
  explicit PathReader(const Path& file) : file_(file) {}

  bool key(string_t& text) override {
    if (!keys_.empty()) keys_.back() = text;
    return on_key(text);
  }
  bool start_object(std::size_t) override { return enter('{'); }
  bool end_object() override { return leave(); }
  bool start_array(std::size_t) override { return enter('['); }
  bool end_array() override { return leave(); }
  bool null() override { return value(Json(nullptr)); }
  bool boolean(bool flag) override { return value(Json(flag)); }
  bool number_integer(number_integer_t number) override { return integer(number); }
  bool number_unsigned(number_unsigned_t number) override {
    constexpr auto kMost = static_cast<number_unsigned_t>(std::numeric_limits<std::int64_t>::max());
    return integer(static_cast<std::int64_t>(std::min(number, kMost)));
  }
  bool number_float(number_float_t number, const string_t&) override { return value(Json(number)); }
  bool binary(binary_t&) override { return false; }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    std::string_view reason = error.what();
    if (const std::size_t colon = reason.find("; "); colon != reason.npos)
      reason.remove_prefix(colon + 2);
    throw corrupt(
        file_, "broken JSON at byte " + std::to_string(position) + " (" + std::string(reason) + ")",
        "The file is damaged or incomplete: fetch it again.");
  }

 protected:
  static constexpr std::size_t kDeepest = 64;

  virtual bool on_key(const std::string& text) = 0;
  virtual bool on_enter(char bracket) = 0;
  virtual bool on_leave() = 0;
  virtual bool integer(std::int64_t number) = 0;
  virtual bool value(Json scalar) = 0;  // every other scalar that string() does not take

  std::size_t depth() const { return keys_.size(); }
  const std::string& key_at(std::size_t level) const { return keys_[level]; }
  const Path& file() const { return file_; }

 private:
  bool enter(char bracket) {
    if (keys_.size() >= kDeepest) throw corrupt(file_, "brackets more than 64 deep");
    const bool go_on = on_enter(bracket);
    keys_.emplace_back();
    return go_on;
  }
  bool leave() {
    keys_.pop_back();
    return on_leave();
  }

  const Path& file_;
  std::vector<std::string> keys_;  // one for each open bracket; empty in arrays
};

class VocabularyReader final : public PathReader {
 public:
  using PathReader::PathReader;
  VocabularyEntries take() { return std::move(entries_); }

  bool string(string_t&) override { throw wrong(); }

 protected:
  bool on_key(const std::string&) override { return true; }
  bool on_enter(char bracket) override {
    if (depth() > 0 || bracket != '{') throw wrong();
    return true;
  }
  bool on_leave() override { return true; }
  bool integer(std::int64_t number) override {
    if (depth() != 1) throw wrong();
    entries_.emplace_back(key_at(0), number);
    return true;
  }
  bool value(Json) override { throw wrong(); }

 private:
  Error wrong() const {
    return corrupt(file(), depth() == 1 ? "the id of token '" + key_at(0) + "' is no integer"
                                        : "not an object of tokens and their ids");
  }
  VocabularyEntries entries_;
};

// model.vocab and model.merges into plain vectors, all else into a tree.
class TokenizerJsonReader final : public PathReader {
 public:
  using PathReader::PathReader;
  TokenizerJson content;
  Json rest;

  bool string(string_t& text) override {
    if (in_merges()) {
      add_merge(text);
      return true;
    }
    return value(Json(text));
  }

 protected:
  bool on_key(const std::string& text) override {
    if (!in_vocabulary() && !open_.empty()) place_ = &(*open_.back())[text];
    return true;
  }
  bool on_enter(char bracket) override {
    if (in_merges() || in_vocabulary()) {
      if (in_vocabulary() || bracket != '[' || depth() != 3) throw wrong_table();
      pair_.clear();
      return true;
    }
    // Only the marks of the two tables go into the tree.
    place(bracket == '{' ? Json(Json::value_t::object) : Json(Json::value_t::array));
    open_.push_back(last_);
    return true;
  }
  bool on_leave() override {
    if (in_merges()) {
      if (pair_.size() != 2) throw wrong_table();
      content.merges.emplace_back(std::move(pair_[0]), std::move(pair_[1]));
      return true;
    }
    open_.pop_back();
    return true;
  }
  bool integer(std::int64_t number) override {
    if (in_vocabulary()) {
      content.vocabulary.emplace_back(key_at(2), number);
      return true;
    }
    return value(Json(number));
  }
  bool value(Json scalar) override {
    if (in_merges() || in_vocabulary()) throw wrong_table();
    return place(std::move(scalar));
  }

 private:
  bool in_model(std::string_view name) const {
    return depth() >= 3 && key_at(0) == "model" && key_at(1) == name && open_.size() >= 3;
  }
  bool in_vocabulary() const { return in_model("vocab") && open_.back()->is_object(); }
  bool in_merges() const { return in_model("merges") && open_.back()->is_array(); }

  void add_merge(std::string& text) {
    if (depth() == 4) {
      pair_.push_back(std::move(text));
      return;
    }
    const std::size_t blank = text.find(' ');
    if (blank == 0 || blank == std::string::npos ||
        text.find(' ', blank + 1) != std::string::npos || blank + 1 == text.size()) {
      throw corrupt(file(), "merge '" + text + "' in model.merges is no pair of tokens");
    }
    content.merges.emplace_back(text.substr(0, blank), text.substr(blank + 1));
  }

  // Puts `node` where the tree has grown to.
  bool place(Json node) {
    if (open_.empty()) {
      rest = std::move(node);
      last_ = &rest;
    } else if (open_.back()->is_array()) {
      last_ = &open_.back()->emplace_back(std::move(node));
    } else {
      *place_ = std::move(node);
      last_ = place_;
    }
    return true;
  }

  Error wrong_table() const {
    return corrupt(file(), in_vocabulary()
                               ? "the id of token '" + key_at(2) + "' is no integer"
                               : "model.merges holds something else than pairs of tokens");
  }

  std::vector<Json*> open_;
  Json* place_ = nullptr;
  Json* last_ = nullptr;
  std::vector<std::string> pair_;
};

void parse(const Path& file, PathReader& reader) {
  const MappedFile mapped(file);
  const std::string_view text = mapped.text();
  if (text.empty()) throw corrupt(file, "the file is empty", "Fetch it again.");
  Json::sax_parse(text.begin(), text.end(), &reader);
}

Json read_small_json(const Path& file) {
  const MappedFile mapped(file);
  Json json = Json::parse(mapped.text(), nullptr, false);
  if (!json.is_object()) throw corrupt(file, "not a JSON object");
  return json;
}

// null and a missing field are the same in these files.
const Json* find(const Json& object, const char* key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

std::string string_at(const Json& object, const char* key) {
  const Json* field = find(object, key);
  return field != nullptr && field->is_string() ? field->get<std::string>() : std::string();
}

bool is_true(const Json& object, const char* key) {
  const Json* field = find(object, key);
  return field != nullptr && field->is_boolean() && field->get<bool>();
}

void check_model(const Path& file, const Json& model) {
  const std::string type = string_at(model, "type");
  if (!type.empty() && type != "BPE") throw unsupported(file, "model.type is " + type);
  if (const Json* dropout = find(model, "dropout"); dropout != nullptr && *dropout != 0) {
    throw unsupported(file, "model.dropout is set");
  }
  for (const char* affix : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!string_at(model, affix).empty())
      throw unsupported(file, std::string("model.") + affix + " is set");
  }
  for (const char* flag : {"byte_fallback", "ignore_merges"}) {
    if (is_true(model, flag)) throw unsupported(file, std::string("model.") + flag + " is true");
  }
  for (const char* table : {"vocab", "merges"}) {
    if (find(model, table) == nullptr)
      throw corrupt(file, std::string("model.") + table + " is missing");
  }
  if (!model["vocab"].is_object()) throw corrupt(file, "model.vocab is no object");
  if (!model["merges"].is_array()) throw corrupt(file, "model.merges is no list");
}

void check_pre_tokenizer(const Path& file, const Json* step) {
  if (step != nullptr && string_at(*step, "type") == "Sequence") {
    const Json* steps = find(*step, "pretokenizers");
    if (steps != nullptr && steps->is_array() && steps->size() == 1) step = &(*steps)[0];
  }
  const std::string type = step == nullptr ? "missing" : string_at(*step, "type");
  if (type != "ByteLevel") throw unsupported(file, "pre_tokenizer is " + type);
  if (is_true(*step, "add_prefix_space")) {
    throw unsupported(file, "pre_tokenizer.add_prefix_space is true");
  }
  const Json* use_regex = find(*step, "use_regex");
  if (use_regex != nullptr && *use_regex == false) {
    throw unsupported(file, "pre_tokenizer.use_regex is false");
  }
}

// ByteLevel moves offsets only; a template that adds nothing is none.
void check_post_processor(const Path& file, const Json* step) {
  if (step == nullptr || string_at(*step, "type") == "ByteLevel") return;
  const std::string type = string_at(*step, "type");
  const Json* single = find(*step, "single");
  if (type == "TemplateProcessing" && single != nullptr && single->is_array() &&
      std::ranges::all_of(*single, [](const Json& part) { return part.contains("Sequence"); })) {
    return;
  }
  throw unsupported(file, "post_processor is " + type + " and adds tokens");
}

std::vector<AddedToken> read_added_tokens(const Path& file, const Json* list) {
  std::vector<AddedToken> tokens;
  if (list == nullptr) return tokens;
  if (!list->is_array()) throw corrupt(file, "added_tokens is no list");
  for (const Json& entry : *list) {
    const Json* id = find(entry, "id");
    AddedToken token{.text = string_at(entry, "content"), .special = is_true(entry, "special")};
    if (token.text.empty() || id == nullptr || !id->is_number_integer()) {
      throw corrupt(
          file, "entry " + std::to_string(tokens.size()) + " of added_tokens lacks content or id");
    }
    token.id = id->get<std::int64_t>();
    for (const char* flag : {"single_word", "lstrip", "rstrip"}) {
      if (is_true(entry, flag)) {
        throw unsupported(file, "added token '" + token.text + "' has " + flag + " true");
      }
    }
    tokens.push_back(std::move(token));
  }
  return tokens;
}

// A special token in the small files is a string, or an object with "content".
std::string token_text(const Json& field) {
  if (field.is_string()) return field.get<std::string>();
  return string_at(field, "content");
}

}  // namespace

VocabularyEntries read_vocabulary_json(const Path& file) {
  VocabularyReader reader(file);
  parse(file, reader);
  return reader.take();
}

TokenizerJson read_tokenizer_json(const Path& file) {
  TokenizerJsonReader reader(file);
  parse(file, reader);
  const Json* model = find(reader.rest, "model");
  if (model == nullptr) throw corrupt(file, "no field 'model'");
  check_model(file, *model);
  if (const Json* normalizer = find(reader.rest, "normalizer")) {
    throw unsupported(file, "normalizer is " + string_at(*normalizer, "type"));
  }
  check_pre_tokenizer(file, find(reader.rest, "pre_tokenizer"));
  check_post_processor(file, find(reader.rest, "post_processor"));
  if (const Json* decoder = find(reader.rest, "decoder")) {
    const std::string type = string_at(*decoder, "type");
    if (type != "ByteLevel") throw unsupported(file, "decoder is " + type);
  }
  reader.content.added_tokens = read_added_tokens(file, find(reader.rest, "added_tokens"));
  return std::move(reader.content);
}

SpecialTokenNames read_special_token_names(const Path& directory) {
  SpecialTokenNames names;
  const auto files = make_posix_file_system();
  const auto read_end_of_text = [&](const Json& json) {
    const Json* eos = find(json, "eos_token");
    if (eos != nullptr && !names.end_of_text) names.end_of_text = token_text(*eos);
  };
  if (const Path file = directory / "tokenizer_config.json"; files->exists(file)) {
    read_end_of_text(read_small_json(file));
  }
  if (const Path file = directory / "special_tokens_map.json"; files->exists(file)) {
    const Json json = read_small_json(file);
    read_end_of_text(json);
    for (const Json& field : json) {
      if (!field.is_array()) {
        names.all.push_back(token_text(field));
        continue;
      }
      for (const Json& entry : field) names.all.push_back(token_text(entry));
    }
  }
  if (const Path file = directory / "added_tokens.json"; files->exists(file)) {
    for (auto& [text, id] : read_vocabulary_json(file)) {
      const bool special = std::ranges::find(names.all, text) != names.all.end();
      names.added.push_back({.text = text, .id = id, .special = special});
    }
  }
  return names;
}

}  // namespace tessera
