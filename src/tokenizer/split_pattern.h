// GPT-2's split of a text into pieces which byte-pair encoding never crosses:
//   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
// (OpenAI, gpt-2/src/encoder.py). Every byte belongs to exactly one piece. Bytes that are not valid
// UTF-8 count as characters of the class [^\s\p{L}\p{N}], one each.
#pragma once

#include <cstddef>
#include <string_view>

namespace tessera {

// The end of the piece that starts at `begin`. `begin` < `end`; `end` is the end of the whole text.
// Linear in the length of this piece and of the white space in it.
const char* end_of_piece(const char* begin, const char* end);

// The first position >= target at which a piece starts whatever follows `text`, or text.size(). The
// two sides of it, split separately, give the pieces of the whole. Such a position follows a
// character that is neither white space nor an apostrophe and has another class than the next:
// - A piece that holds such a character holds only its class from there on, so it ends there. A
//   contraction ('s, 'll) ends in a letter, and the next character is none.
// - The only look-ahead, \s+(?!\S), looks at the character behind white space, and the left side
//   ends in none.
std::size_t safe_piece_boundary(std::string_view text, std::size_t target);

}  // namespace tessera
