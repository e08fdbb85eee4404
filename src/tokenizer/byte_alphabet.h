// The printable stand-ins of bytes in GPT-2's files (OpenAI, gpt-2/src/encoder.py,
// bytes_to_unicode): the bytes 33-126, 161-172 and 174-255 are the code points of the same number,
// the other 68 in ascending order U+0100 to U+0143.
#pragma once

#include <array>
#include <string>
#include <string_view>

namespace tessera {

// All bytes in the order of their stand-ins, which is that of GPT-2's ids 0 to 255.
const std::array<unsigned char, 256>& byte_alphabet_order();

std::string to_byte_alphabet(std::string_view bytes);

// False, with `bytes` undefined, if `text` holds anything that stands for no byte.
bool from_byte_alphabet(std::string_view text, std::string& bytes);

}  // namespace tessera
