#include "tokenizer/unicode_classes.h"

namespace tessera {

CodePoint decode_code_point(const char* begin, const char* end) {
  constexpr CodePoint kInvalid{.code = 0, .length = 1, .valid = false};
  const auto byte = [&](int i) { return static_cast<unsigned char>(begin[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return {.code = lead, .length = 1, .valid = true};
  if (lead < 0xC2 || lead > 0xF4) return kInvalid;
  const int length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  if (end - begin < length) return kInvalid;
  char32_t code = lead & (0xFF >> (length + 1));
  for (int i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return kInvalid;
    code = code << 6 | (byte(i) & 0x3F);
  }
  const bool overlong = (length == 3 && code < 0x800) || (length == 4 && code < 0x10000);
  if (overlong || (code >= 0xD800 && code <= 0xDFFF) || code > 0x10FFFF) return kInvalid;
  return {.code = code, .length = static_cast<std::uint8_t>(length), .valid = true};
}

std::size_t find_invalid_utf8(std::string_view text) {
  const char* const end = text.data() + text.size();
  for (const char* at = text.data(); at < end;) {
    const CodePoint point = decode_code_point(at, end);
    if (!point.valid) return static_cast<std::size_t>(at - text.data());
    at += point.length;
  }
  return std::string_view::npos;
}

void append_utf8(char32_t code, std::string& text) {
  const auto put = [&](char32_t byte) { text += static_cast<char>(byte); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xC0 | code >> 6);
    put(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    put(0xE0 | code >> 12);
    put(0x80 | (code >> 6 & 0x3F));
    put(0x80 | (code & 0x3F));
  } else {
    put(0xF0 | code >> 18);
    put(0x80 | (code >> 12 & 0x3F));
    put(0x80 | (code >> 6 & 0x3F));
    put(0x80 | (code & 0x3F));
  }
}

}  // namespace tessera
