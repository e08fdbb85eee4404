#include "tokenizer/split_pattern.h"

#include <algorithm>
#include <array>
#include <cstdint>

#include "tokenizer/unicode_classes.h"

namespace tessera {
namespace {

constexpr std::uint8_t kNotAscii = 255;

// The class of a byte that is a whole character, kNotAscii for others. The generated table says the
// same of ASCII (a test compares them), but is known only at run time.
constexpr std::array<std::uint8_t, 256> make_byte_classes() {
  std::array<std::uint8_t, 256> classes{};
  for (int byte = 0; byte < 256; ++byte) {
    const bool letter = (byte >= 'A' && byte <= 'Z') || (byte >= 'a' && byte <= 'z');
    const bool space = byte == ' ' || (byte >= 9 && byte <= 13);
    CharClass value = CharClass::kOther;
    if (letter) value = CharClass::kLetter;
    if (byte >= '0' && byte <= '9') value = CharClass::kNumber;
    if (space) value = CharClass::kSpace;
    classes[byte] = byte >= 0x80 ? kNotAscii : static_cast<std::uint8_t>(value);
  }
  return classes;
}

constexpr std::array<std::uint8_t, 256> kByteClasses = make_byte_classes();

struct Character {
  CharClass value = CharClass::kOther;
  std::uint8_t length = 1;
};

inline Character character_at(const char* at, const char* end) {
  const std::uint8_t value = kByteClasses[static_cast<unsigned char>(*at)];
  if (value != kNotAscii) return {static_cast<CharClass>(value), 1};
  const CodePoint point = decode_code_point(at, end);
  return {class_of(point), point.length};
}

// Behind the characters of class `value` from `at` on.
inline const char* end_of_run(const char* at, const char* end, CharClass value) {
  while (at < end) {
    const std::uint8_t byte_class = kByteClasses[static_cast<unsigned char>(*at)];
    if (byte_class == static_cast<std::uint8_t>(value)) {
      ++at;
      continue;
    }
    if (byte_class != kNotAscii) break;
    const Character character = character_at(at, end);
    if (character.value != value) break;
    at += character.length;
  }
  return at;
}

// The length of a contraction that starts at the apostrophe `at`, or 0.
inline int contraction_length(const char* at, const char* end) {
  if (end - at < 2) return 0;
  const char first = at[1];
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return 2;
  if (end - at < 3) return 0;
  const char second = at[2];
  const bool three =
      ((first == 'r' || first == 'v') && second == 'e') || (first == 'l' && second == 'l');
  return three ? 3 : 0;
}

// \s+(?!\S)|\s+ : all of the white space before the end of the text; else all but the character
// before the next one, which is a piece of its own or, a blank, the start of the next.
const char* end_of_white_space(const char* begin, Character first, const char* end) {
  const char* last = begin;
  const char* at = begin + first.length;
  while (at < end) {
    const Character character = character_at(at, end);
    if (character.value != CharClass::kSpace) return last == begin ? at : last;
    last = at;
    at += character.length;
  }
  return end;
}

// The class of the character that ends before text[at], at > 0; text[at] is no continuation byte.
// Such a byte starts a step of a walk from the front, so looking back for the sequence that ends
// here finds the step before.
CharClass class_before(std::string_view text, std::size_t at) {
  std::size_t lead = at - 1;
  while (lead > 0 && at - lead < 4 && is_continuation_byte(text[lead])) --lead;
  const Character character = character_at(text.data() + lead, text.data() + text.size());
  return lead + character.length == at ? character.value : CharClass::kOther;
}

// Whether the character that starts here may go on behind the end of the text.
bool is_cut_off(std::string_view rest) {
  const auto lead = static_cast<unsigned char>(rest[0]);
  if (lead < 0xC2) return false;
  return rest.size() < (lead < 0xE0 ? 2U : lead < 0xF0 ? 3U : 4U);
}

}  // namespace

const char* end_of_piece(const char* begin, const char* end) {
  if (*begin == '\'') {
    if (const int length = contraction_length(begin, end)) return begin + length;
  }
  const Character first = character_at(begin, end);
  if (first.value != CharClass::kSpace) return end_of_run(begin + first.length, end, first.value);
  if (*begin == ' ' && begin + 1 < end) {
    const Character second = character_at(begin + 1, end);
    if (second.value != CharClass::kSpace) {
      return end_of_run(begin + 1 + second.length, end, second.value);
    }
  }
  return end_of_white_space(begin, first, end);
}

std::size_t safe_piece_boundary(std::string_view text, std::size_t target) {
  const char* const end = text.data() + text.size();
  for (std::size_t at = std::max<std::size_t>(target, 1); at < text.size(); ++at) {
    if (is_continuation_byte(text[at]) || text[at - 1] == '\'') continue;
    const CharClass before = class_before(text, at);
    if (before == CharClass::kSpace || is_cut_off(text.substr(at))) continue;
    if (before != character_at(text.data() + at, end).value) return at;
  }
  return text.size();
}

}  // namespace tessera
