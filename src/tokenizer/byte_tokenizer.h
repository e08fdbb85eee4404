// Every byte is a token: ids 0 to 255 are the bytes, 256 the end of text if there is one. Needs no
// training and takes any text. Saved as tessera_tokenizer.json.
#pragma once

#include <memory>
#include <string_view>

#include "tokenizer/tokenizer.h"

namespace tessera {

enum class EndOfText { kNone, kAdded };  // whether a vocabulary gets <|endoftext|>, as its last id

std::unique_ptr<Tokenizer> make_byte_tokenizer(EndOfText end_of_text);

}  // namespace tessera
