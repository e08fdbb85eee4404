#include "tokenizer/byte_tokenizer.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "tokenizer/small_tokenizer_file.h"

namespace tessera {
namespace {

class ByteTokenizer final : public Tokenizer {
 public:
  explicit ByteTokenizer(TokenizerContents contents) : Tokenizer(std::move(contents)) {
    finish_hash("byte");
  }

  std::string_view kind() const override { return "byte"; }
  std::vector<TokenizerFile> files() const override {
    return {write_small_tokenizer(kind(), std::nullopt, end_of_text())};
  }

 protected:
  void append_text(std::string_view text, std::size_t, std::vector<TokenId>& ids) const override {
    const std::size_t size = ids.size();
    ids.resize(size + text.size());
    std::ranges::transform(text, ids.begin() + static_cast<std::ptrdiff_t>(size),
                           [](char byte) { return static_cast<unsigned char>(byte); });
  }
  std::size_t safe_split(std::string_view text, std::size_t target) const override {
    return std::min(target, text.size());
  }
};

}  // namespace

std::unique_ptr<Tokenizer> make_byte_tokenizer(EndOfText end_of_text) {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  if (end_of_text == EndOfText::kNone) {
    return std::make_unique<ByteTokenizer>(TokenizerContents{.tokens = std::move(tokens)});
  }
  tokens.emplace_back(kEndOfText);
  return std::make_unique<ByteTokenizer>(
      TokenizerContents{.tokens = std::move(tokens),
                        .special_tokens = {{.text = std::string(kEndOfText), .id = 256}},
                        .end_of_text = 256});
}

}  // namespace tessera
