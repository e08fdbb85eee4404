// Streaming check that bytes are UTF-8 text. Owns: the state between blocks.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tessera {

// Strict: no overlong forms, no surrogates, nothing above U+10FFFF; and no NUL, which tells binary
// data from text.
class Utf8Check {
 public:
  // `file` is for messages; any_bytes: only NUL is refused; byte_setting: the setting that a
  // message may offer for text of any bytes.
  explicit Utf8Check(std::string file, bool any_bytes = false, std::string byte_setting = {})
      : file_(std::move(file)), byte_setting_(std::move(byte_setting)), any_bytes_(any_bytes) {}
  // Error{kData} with file and the byte offset where the broken character begins.
  void add(std::string_view block);
  void finish();  // the text must not end inside a character

 private:
  [[noreturn]] void invalid(std::uint64_t offset) const;

  std::string file_, byte_setting_;
  bool any_bytes_;
  std::uint64_t offset_ = 0;
  std::uint64_t begin_ = 0;                 // of the current character
  int missing_ = 0;                         // bytes that the current character still needs
  unsigned char low_ = 0x80, high_ = 0xBF;  // the range of the next one
};

// Where the (count + 1)-th character of `block` begins: every byte that is no continuation byte
// begins one. block.size() and a rest where there are fewer: `count` is lowered by those there are.
std::size_t skip_characters(std::string_view block, std::uint64_t& count);
std::uint64_t count_characters(std::string_view block);

}  // namespace tessera
