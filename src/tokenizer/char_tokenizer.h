// Every character (Unicode code point) of a training text is a token. Owns: the vocabulary and the
// tokenizer. Saved as tessera_tokenizer.json.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/byte_tokenizer.h"
#include "tokenizer/tokenizer.h"

namespace tessera {

// Gathers the characters of texts. Ids are given by ascending code point, whatever the order of the
// texts.
class CharVocabulary {
 public:
  CharVocabulary();
  // Error{kData} with the place if `text` is not valid UTF-8; `name` says whose text it is, for
  // that message.
  void add(std::string_view text, std::string_view name);
  std::size_t size() const;

  // Error{kData} if no character was added. Encoding a character outside the vocabulary is
  // Error{kData} which names it and its place.
  std::unique_ptr<Tokenizer> make_tokenizer(EndOfText end_of_text) const;

 private:
  std::vector<bool> seen_;  // by code point
};

// From characters in the order of their ids. Error{kCorrupt} if one is given twice or is not valid.
std::unique_ptr<Tokenizer> make_char_tokenizer(std::string_view characters, EndOfText end_of_text);

}  // namespace tessera
