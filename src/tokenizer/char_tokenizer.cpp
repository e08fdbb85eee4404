#include "tokenizer/char_tokenizer.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "tokenizer/small_tokenizer_file.h"
#include "tokenizer/unicode_classes.h"

namespace tessera {
namespace {

constexpr std::size_t kCodePoints = 0x110000;

std::string place(std::size_t offset) { return "byte " + std::to_string(offset) + " of the text"; }

Error invalid_utf8(const std::string& where) {
  return Error(ErrorKind::kData, "the text is not valid UTF-8", where,
               "Convert it to UTF-8, or use the byte tokenizer.");
}

class CharTokenizer final : public Tokenizer {
 public:
  CharTokenizer(TokenizerContents contents, std::string characters)
      : Tokenizer(std::move(contents)), characters_(std::move(characters)) {
    const char* const end = characters_.data() + characters_.size();
    TokenId id = 0;
    for (const char* at = characters_.data(); at < end; ++id) {
      const CodePoint point = decode_code_point(at, end);
      at += point.length;
      if (point.code < ascii_ids_.size()) {
        ascii_ids_[point.code] = id + 1;
      } else {
        other_ids_.emplace(point.code, id);
      }
    }
    finish_hash("char");
  }

  std::string_view kind() const override { return "char"; }
  std::vector<TokenizerFile> files() const override {
    return {write_small_tokenizer(kind(), characters_, end_of_text())};
  }

 protected:
  void append_text(std::string_view text, std::size_t offset,
                   std::vector<TokenId>& ids) const override {
    const char* const end = text.data() + text.size();
    for (const char* at = text.data(); at < end;) {
      const CodePoint point = decode_code_point(at, end);
      const std::size_t here = offset + static_cast<std::size_t>(at - text.data());
      if (!point.valid) throw invalid_utf8(place(here));
      ids.push_back(id_of(point.code, std::string_view(at, point.length), here));
      at += point.length;
    }
  }
  std::size_t safe_split(std::string_view text, std::size_t target) const override {
    while (target < text.size() && is_continuation_byte(text[target])) ++target;
    return std::min(target, text.size());
  }

 private:
  TokenId id_of(char32_t code, std::string_view bytes, std::size_t offset) const {
    if (code < ascii_ids_.size()) {
      if (ascii_ids_[code] > 0) return ascii_ids_[code] - 1;
    } else if (const auto found = other_ids_.find(code); found != other_ids_.end()) {
      return found->second;
    }
    char name[16];
    std::snprintf(name, sizeof(name), "U+%04X", static_cast<unsigned>(code));
    const std::string shown = code >= 0x20 && code != 0x7F ? " '" + std::string(bytes) + "'" : "";
    throw Error(
        ErrorKind::kData,
        std::string("character ") + name + shown + " is not in the vocabulary of " +
            std::to_string(other_ids_.size() + known_ascii()) + " characters",
        place(offset),
        "Make the vocabulary from text that holds it, remove it, or use the byte tokenizer.");
  }
  std::size_t known_ascii() const {
    return ascii_ids_.size() - static_cast<std::size_t>(std::ranges::count(ascii_ids_, 0));
  }

  std::string characters_;
  std::array<TokenId, 128> ascii_ids_{};  // id + 1, or 0
  std::unordered_map<char32_t, TokenId> other_ids_;
};

}  // namespace

CharVocabulary::CharVocabulary() : seen_(kCodePoints) {}

void CharVocabulary::add(std::string_view text, std::string_view name) {
  const char* const end = text.data() + text.size();
  for (const char* at = text.data(); at < end;) {
    const CodePoint point = decode_code_point(at, end);
    if (!point.valid) {
      throw invalid_utf8(std::string(name) + ", byte " + std::to_string(at - text.data()));
    }
    seen_[point.code] = true;
    at += point.length;
  }
}

std::size_t CharVocabulary::size() const {
  return static_cast<std::size_t>(std::ranges::count(seen_, true));
}

std::unique_ptr<Tokenizer> CharVocabulary::make_tokenizer(EndOfText end_of_text) const {
  std::string characters;
  for (std::size_t code = 0; code < kCodePoints; ++code) {
    if (seen_[code]) append_utf8(static_cast<char32_t>(code), characters);
  }
  if (characters.empty()) {
    throw Error(ErrorKind::kData, "cannot make a character vocabulary: the text is empty", {},
                "Give a text with at least one character.");
  }
  return make_char_tokenizer(characters, end_of_text);
}

std::unique_ptr<Tokenizer> make_char_tokenizer(std::string_view characters, EndOfText end_of_text) {
  std::vector<std::string> tokens;
  std::vector<bool> seen(kCodePoints);
  const char* const end = characters.data() + characters.size();
  for (const char* at = characters.data(); at < end;) {
    const CodePoint point = decode_code_point(at, end);
    if (!point.valid) throw Error(ErrorKind::kCorrupt, "the characters are not valid UTF-8");
    if (seen[point.code]) {
      throw Error(ErrorKind::kCorrupt,
                  "character " + std::to_string(tokens.size()) + " is given twice");
    }
    seen[point.code] = true;
    tokens.emplace_back(at, point.length);
    at += point.length;
  }
  if (tokens.empty()) throw Error(ErrorKind::kCorrupt, "a vocabulary without characters");
  TokenizerContents contents{.tokens = std::move(tokens)};
  if (end_of_text == EndOfText::kAdded) {
    const auto id = static_cast<TokenId>(contents.tokens.size());
    contents.tokens.emplace_back(kEndOfText);
    contents.special_tokens.push_back({.text = std::string(kEndOfText), .id = id});
    contents.end_of_text = id;
  }
  return std::make_unique<CharTokenizer>(std::move(contents), std::string(characters));
}

}  // namespace tessera
