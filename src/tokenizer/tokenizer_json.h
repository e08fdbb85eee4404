// Reading of Hugging Face's JSON files without a tree for their long tables. Owns: syntax and
// types. Not: meaning.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/file_system.h"

namespace tessera {

using VocabularyEntries = std::vector<std::pair<std::string, std::int64_t>>;

struct AddedToken {
  std::string text;
  std::int64_t id = 0;
  bool special = true;
};

struct TokenizerJson {
  VocabularyEntries vocabulary;                             // model.vocab as written
  std::vector<std::pair<std::string, std::string>> merges;  // model.merges, in either of its forms
  std::vector<AddedToken> added_tokens;
};

// What the small files beside a vocabulary say.
struct SpecialTokenNames {
  std::optional<std::string> end_of_text;  // eos_token
  std::vector<std::string> all;            // every token that special_tokens_map.json names
  std::vector<AddedToken> added;           // added_tokens.json
};

// {"token": id, …}. Errors as of load_tokenizer; so below.
VocabularyEntries read_vocabulary_json(const Path& file);
// Refuses what is not GPT-2's byte-level BPE.
TokenizerJson read_tokenizer_json(const Path& file);
// Reads tokenizer_config.json, special_tokens_map.json and added_tokens.json as far as they are
// there.
SpecialTokenNames read_special_token_names(const Path& directory);

}  // namespace tessera
