#include "config/utf8.h"

namespace tessera {

CodePoint decode_utf8(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return {first, 1, true};
  const std::size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  constexpr CodePoint kInvalid = {0xfffd, 1, false};
  if (first < 0xc2 || first > 0xf4 || text.size() < length) return kInvalid;
  char32_t value = first & (0x7fu >> length);
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return kInvalid;
    value = (value << 6) | (byte(i) & 0x3f);
  }
  constexpr char32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = value >= 0xd800 && value <= 0xdfff;
  if (value < kSmallest[length] || value > 0x10ffff || surrogate) return kInvalid;
  return {value, length, true};
}

bool is_utf8(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    const CodePoint c = decode_utf8(text.substr(i));
    if (!c.valid) return false;
    i += c.bytes;
  }
  return true;
}

}  // namespace tessera
