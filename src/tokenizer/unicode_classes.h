// UTF-8 and the character classes of GPT-2's split pattern. Owns: decoding one code point, \p{L},
// \p{N} and White_Space of the Unicode version that the build found. Not: splitting
// (split_pattern.h), repair for output (utf8_stream.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tessera {

enum class CharClass : std::uint8_t {
  kOther = 0,   // [^\s\p{L}\p{N}]; also every byte that is not part of valid UTF-8
  kLetter = 1,  // \p{L}
  kNumber = 2,  // \p{N}
  kSpace = 3,   // \s = Unicode White_Space: U+0085 is one, U+FEFF and U+001C..U+001F are none
};

namespace unicode_tables {
extern const std::uint8_t kBlockIndex[];  // block of 256 code points -> which block of kBlocks
extern const std::uint8_t kBlocks[];
}  // namespace unicode_tables

// `code` < 0x110000.
inline CharClass class_of(char32_t code) {
  const std::size_t block = unicode_tables::kBlockIndex[code >> 8];
  return static_cast<CharClass>(unicode_tables::kBlocks[block << 8 | (code & 255)]);
}

// One step through a text. Where no valid sequence starts (Unicode's table 3-7: no overlong forms,
// no surrogates, nothing above U+10FFFF), a single byte is one step with valid = false.
struct CodePoint {
  char32_t code = 0;  // 0 if not valid
  std::uint8_t length = 1;
  bool valid = true;
};

// `begin` < `end`. Reads nothing at or behind `end`.
CodePoint decode_code_point(const char* begin, const char* end);

inline CharClass class_of(const CodePoint& point) {
  return point.valid ? class_of(point.code) : CharClass::kOther;
}

inline bool is_continuation_byte(char byte) {
  return (static_cast<unsigned char>(byte) & 0xC0) == 0x80;
}

// The position of the first byte that is not part of valid UTF-8, or npos.
std::size_t find_invalid_utf8(std::string_view text);

// `code` is a valid scalar value.
void append_utf8(char32_t code, std::string& text);

}  // namespace tessera
