#include "tokenizer/bpe_files.h"

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "tokenizer/byte_alphabet.h"
#include "tokenizer/tokenizer_json.h"
#include "tokenizer/unicode_classes.h"

namespace tessera {
namespace {

// Far above any vocabulary in use; an id beyond it is a damaged file, not a reason to allocate
// gigabytes.
constexpr std::int64_t kMostIds = std::int64_t{1} << 24;

Error corrupt(const Path& file, const std::string& why) {
  return Error(ErrorKind::kCorrupt, "cannot read the tokenizer: " + why, file.string(),
               "The file is damaged, or belongs to another tokenizer: fetch it again.");
}

struct Hash {
  std::size_t operator()(std::string_view text) const { return hash64(text); }
};

// Gathers a BpeModel from tokens as the files spell them.
class ModelBuilder {
 public:
  ModelBuilder(const Path& file, const VocabularyEntries& entries) : file_(file) {
    ids_.reserve(entries.size() * 2);
    for (const auto& [text, id] : entries) add_token(text, id);
  }

  void add_merge(std::string_view left, std::string_view right, const Path& file,
                 std::size_t number) {
    joined_.assign(left);
    joined_ += right;
    TokenMerge merge;
    for (const auto& [text, id] : {std::pair(left, &merge.left), std::pair(right, &merge.right),
                                   std::pair(std::string_view(joined_), &merge.merged)}) {
      const auto found = ids_.find(text);
      if (found == ids_.end()) {
        throw corrupt(file, "merge " + std::to_string(number) + " ('" + std::string(left) + " " +
                                std::string(right) + "') needs token '" + std::string(text) +
                                "', which the vocabulary lacks");
      }
      *id = found->second;
    }
    model_.merges.push_back(merge);
  }

  void add_special(const AddedToken& token) {
    const auto found = ids_.find(token.text);
    if (found != ids_.end() && found->second != token.id) {
      throw corrupt(file_, "token '" + token.text + "' has two ids, " +
                               std::to_string(found->second) + " and " + std::to_string(token.id));
    }
    if (found == ids_.end()) {
      extra_names_.push_back(std::make_unique<std::string>(token.text));
      add_token(*extra_names_.back(), token.id);
    }
    const auto id = static_cast<TokenId>(token.id);
    const auto same = [&](const SpecialToken& known) { return known.id == id; };
    if (std::ranges::any_of(model_.special_tokens, same)) return;
    model_.tokens[static_cast<std::size_t>(id)] = token.text;
    model_.special_tokens.push_back(
        {.text = token.text, .id = id, .always_parsed = !token.special});
  }

  // As add_special, with the vocabulary's id. False if the vocabulary lacks it.
  bool add_special_by_name(const std::string& text) {
    const auto found = ids_.find(text);
    if (text.empty() || found == ids_.end()) return false;
    add_special({.text = text, .id = found->second});
    return true;
  }

  void set_end_of_text(const std::optional<std::string>& name) {
    if (name && add_special_by_name(*name)) {
      model_.end_of_text = ids_.find(*name)->second;
    } else if (add_special_by_name(std::string(kEndOfText))) {
      model_.end_of_text = ids_.find(kEndOfText)->second;
    }
  }

  std::unique_ptr<Tokenizer> finish() {
    try {
      return std::make_unique<BpeTokenizer>(std::move(model_));
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kCorrupt || !error.where().empty()) throw;
      throw corrupt(file_, error.reason());
    }
  }

 private:
  // `text` stays where it is as long as this object.
  void add_token(std::string_view text, std::int64_t id) {
    if (id < 0 || id >= kMostIds) {
      throw corrupt(file_, "token '" + std::string(text) + "' has id " + std::to_string(id) +
                               ", outside 0 to " + std::to_string(kMostIds - 1));
    }
    if (text.empty()) throw corrupt(file_, "a token without text (id " + std::to_string(id) + ")");
    if (!ids_.try_emplace(text, static_cast<TokenId>(id)).second) {
      throw corrupt(file_, "token '" + std::string(text) + "' is given twice");
    }
    const auto index = static_cast<std::size_t>(id);
    if (index >= model_.tokens.size()) model_.tokens.resize(index + 1);
    std::string& token = model_.tokens[index];
    if (!token.empty()) {
      throw corrupt(file_, "id " + std::to_string(id) + " is given to two tokens, one of them '" +
                               std::string(text) + "'");
    }
    // What is not spelled in the byte alphabet never arises from text; it stands for itself.
    if (!from_byte_alphabet(text, token)) token = text;
  }

  const Path& file_;
  BpeModel model_;
  std::unordered_map<std::string_view, TokenId, Hash> ids_;
  std::vector<std::unique_ptr<std::string>> extra_names_;
  std::string joined_;
};

// Lines "left right" behind an optional "#version: …" line.
void read_merges(const Path& file, ModelBuilder& builder) {
  const MappedFile mapped(file);
  std::string_view rest = mapped.text();
  std::size_t number = 0, merges = 0;
  while (!rest.empty()) {
    const std::size_t newline = std::min(rest.find('\n'), rest.size());
    std::string_view line = rest.substr(0, newline);
    rest.remove_prefix(std::min(newline + 1, rest.size()));
    ++number;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() || (number == 1 && line.starts_with("#version"))) continue;
    const std::size_t blank = line.find(' ');
    if (blank == std::string_view::npos || blank == 0 || blank + 1 == line.size() ||
        line.find(' ', blank + 1) != std::string_view::npos) {
      throw corrupt(file, "line " + std::to_string(number) + " is no pair of tokens");
    }
    builder.add_merge(line.substr(0, blank), line.substr(blank + 1), file, ++merges);
  }
}

void append_json_string(std::string_view text, std::string& json) {
  static constexpr char kDigits[] = "0123456789abcdef";
  json += '"';
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      json += '\\';
      json += c;
    } else if (byte < 0x20 || byte == 0x7F) {
      json += "\\u00";
      json += kDigits[byte >> 4];
      json += kDigits[byte & 15];
    } else {
      json += c;
    }
  }
  json += '"';
}

std::string json_string(std::string_view text) {
  std::string json;
  append_json_string(text, json);
  return json;
}

// A token as the files spell it.
std::vector<std::string> spell_tokens(const BpeTokenizer& tokenizer) {
  std::vector<std::string> names(static_cast<std::size_t>(tokenizer.vocab_size()));
  for (TokenId id = 0; id < tokenizer.vocab_size(); ++id) {
    if (!tokenizer.is_token(id)) continue;
    names[static_cast<std::size_t>(id)] = to_byte_alphabet(tokenizer.token_bytes(id));
  }
  for (const SpecialToken& token : tokenizer.special_tokens()) {
    names[static_cast<std::size_t>(token.id)] = token.text;
  }
  return names;
}

std::string vocabulary_json(const std::vector<std::string>& names, std::string_view separator) {
  std::string json = "{";
  for (std::size_t id = 0; id < names.size(); ++id) {
    if (names[id].empty()) continue;
    if (json.size() > 1) json += ',';
    json += separator;
    append_json_string(names[id], json);
    json += ": " + std::to_string(id);
  }
  return json + (separator.empty() ? "}" : "\n    }");
}

std::string added_tokens_json(const BpeTokenizer& tokenizer) {
  std::string json = "[";
  for (const SpecialToken& token : tokenizer.special_tokens()) {
    json += json.size() > 1 ? "," : "";
    json +=
        "\n    {\"id\": " + std::to_string(token.id) + ", \"content\": " + json_string(token.text) +
        ", \"single_word\": false, \"lstrip\": false, \"rstrip\": false, \"normalized\": false, "
        "\"special\": " +
        (token.always_parsed ? "false}" : "true}");
  }
  return json + (json.size() > 1 ? "\n  ]" : "]");
}

std::string tokenizer_json(const BpeTokenizer& tokenizer, const std::vector<std::string>& names) {
  std::string json =
      "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n  "
      "\"added_tokens\": " +
      added_tokens_json(tokenizer) +
      ",\n  \"normalizer\": null,\n"
      "  \"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false, "
      "\"trim_offsets\": "
      "true, \"use_regex\": true},\n"
      "  \"post_processor\": {\"type\": \"ByteLevel\", \"add_prefix_space\": true, "
      "\"trim_offsets\": "
      "false, \"use_regex\": true},\n"
      "  \"decoder\": {\"type\": \"ByteLevel\", \"add_prefix_space\": true, \"trim_offsets\": "
      "true, "
      "\"use_regex\": true},\n"
      "  \"model\": {\n    \"type\": \"BPE\",\n    \"dropout\": null,\n    \"unk_token\": null,\n"
      "    \"continuing_subword_prefix\": \"\",\n    \"end_of_word_suffix\": \"\",\n"
      "    \"fuse_unk\": false,\n    \"byte_fallback\": false,\n    \"vocab\": " +
      vocabulary_json(names, "\n      ") + ",\n    \"merges\": [";
  const char* separator = "\n      ";
  for (const TokenMerge& merge : tokenizer.merges()) {
    json += separator;
    json += json_string(names[static_cast<std::size_t>(merge.left)] + " " +
                        names[static_cast<std::size_t>(merge.right)]);
    separator = ",\n      ";
  }
  return json + (tokenizer.merges().empty() ? "]\n  }\n}\n" : "\n    ]\n  }\n}\n");
}

std::string merges_text(const BpeTokenizer& tokenizer, const std::vector<std::string>& names) {
  std::string text = "#version: 0.2\n";
  for (const TokenMerge& merge : tokenizer.merges()) {
    text += names[static_cast<std::size_t>(merge.left)] + ' ' +
            names[static_cast<std::size_t>(merge.right)] + '\n';
  }
  return text;
}

// GPT-2 uses its one special token for all roles.
std::string role_fields(const BpeTokenizer& tokenizer) {
  std::string fields;
  if (tokenizer.end_of_text()) {
    const std::string end_of_text = json_string(tokenizer.token_bytes(*tokenizer.end_of_text()));
    for (const char* role : {"bos_token", "eos_token", "unk_token"}) {
      fields += std::string("  \"") + role + "\": " + end_of_text + ",\n";
    }
  }
  std::string others;
  for (const SpecialToken& token : tokenizer.special_tokens()) {
    if (token.id == tokenizer.end_of_text() || token.always_parsed) continue;
    others += (others.empty() ? "" : ", ") + json_string(token.text);
  }
  if (!others.empty()) fields += "  \"additional_special_tokens\": [" + others + "],\n";
  return fields;
}

std::string special_tokens_map_json(const BpeTokenizer& tokenizer) {
  std::string fields = role_fields(tokenizer);
  if (fields.empty()) return "{}\n";
  fields.erase(fields.size() - 2);
  return "{\n" + fields + "\n}\n";
}

std::string tokenizer_config_json(const BpeTokenizer& tokenizer) {
  return "{\n" + role_fields(tokenizer) +
         "  \"add_prefix_space\": false,\n  \"clean_up_tokenization_spaces\": false,\n"
         "  \"errors\": \"replace\",\n  \"tokenizer_class\": \"GPT2Tokenizer\"\n}\n";
}

}  // namespace

std::unique_ptr<Tokenizer> load_bpe_tokenizer_json(const Path& file) {
  const TokenizerJson content = read_tokenizer_json(file);
  const SpecialTokenNames names = read_special_token_names(file.parent_path());
  ModelBuilder builder(file, content.vocabulary);
  std::size_t number = 0;
  for (const auto& [left, right] : content.merges) builder.add_merge(left, right, file, ++number);
  for (const AddedToken& token : content.added_tokens) builder.add_special(token);
  builder.set_end_of_text(names.end_of_text);
  return builder.finish();
}

std::unique_ptr<Tokenizer> load_bpe_vocabulary(const Path& vocabulary, const Path& merges) {
  const VocabularyEntries entries = read_vocabulary_json(vocabulary);
  const SpecialTokenNames names = read_special_token_names(vocabulary.parent_path());
  ModelBuilder builder(vocabulary, entries);
  read_merges(merges, builder);
  for (const AddedToken& token : names.added) builder.add_special(token);
  for (const std::string& name : names.all) builder.add_special_by_name(name);
  builder.set_end_of_text(names.end_of_text);
  return builder.finish();
}

std::vector<TokenizerFile> bpe_files(const BpeTokenizer& tokenizer) {
  const std::vector<std::string> names = spell_tokens(tokenizer);
  return {{"vocab.json", vocabulary_json(names, "") + "\n"},
          {"merges.txt", merges_text(tokenizer, names)},
          {"tokenizer.json", tokenizer_json(tokenizer, names)},
          {"tokenizer_config.json", tokenizer_config_json(tokenizer)},
          {"special_tokens_map.json", special_tokens_map_json(tokenizer)}};
}

}  // namespace tessera
