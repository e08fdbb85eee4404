#include "tokenizer/byte_alphabet.h"

#include <cstdint>

#include "tokenizer/unicode_classes.h"

namespace tessera {
namespace {

struct Alphabet {
  std::array<char16_t, 256> code{};
  std::array<std::int16_t, 0x144> byte{};
  std::array<unsigned char, 256> order{};
};

constexpr Alphabet make_alphabet() {
  Alphabet alphabet;
  for (std::int16_t& byte : alphabet.byte) byte = -1;
  char16_t next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const bool itself =
        (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || (byte >= 174);
    alphabet.code[byte] = itself ? static_cast<char16_t>(byte) : next++;
    alphabet.byte[alphabet.code[byte]] = static_cast<std::int16_t>(byte);
  }
  int position = 0;
  for (const std::int16_t byte : alphabet.byte) {
    if (byte >= 0) alphabet.order[position++] = static_cast<unsigned char>(byte);
  }
  return alphabet;
}

constexpr Alphabet kAlphabet = make_alphabet();

}  // namespace

const std::array<unsigned char, 256>& byte_alphabet_order() { return kAlphabet.order; }

std::string to_byte_alphabet(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size() * 2);
  for (const char byte : bytes) append_utf8(kAlphabet.code[static_cast<unsigned char>(byte)], text);
  return text;
}

bool from_byte_alphabet(std::string_view text, std::string& bytes) {
  bytes.clear();
  const char* const end = text.data() + text.size();
  for (const char* at = text.data(); at < end;) {
    const CodePoint point = decode_code_point(at, end);
    if (!point.valid || point.code >= kAlphabet.byte.size()) return false;
    const std::int16_t byte = kAlphabet.byte[point.code];
    if (byte < 0) return false;
    bytes += static_cast<char>(byte);
    at += point.length;
  }
  return true;
}

}  // namespace tessera
