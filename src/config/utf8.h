// One code point of UTF-8 at a time. Owns: strict decoding (no surrogates, no overlong forms).
#pragma once

#include <cstddef>
#include <string_view>

namespace tessera {

struct CodePoint {
  char32_t value = 0;     // U+FFFD where the bytes are not UTF-8
  std::size_t bytes = 1;  // 1 where the bytes are not UTF-8
  bool valid = true;
};

CodePoint decode_utf8(std::string_view text);  // the first one; text is not empty
bool is_utf8(std::string_view text);

}  // namespace tessera
