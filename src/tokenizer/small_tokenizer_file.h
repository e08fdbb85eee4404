// tessera_tokenizer.json, the file of byte and char tokenizers:
//   {"kind": "byte" | "char", "characters": "…" (char: in the order of their ids), "end_of_text":
//   ID | null}
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "tokenizer/tokenizer.h"

namespace tessera {

inline constexpr std::string_view kSmallTokenizerFile = "tessera_tokenizer.json";

TokenizerFile write_small_tokenizer(std::string_view kind,
                                    std::optional<std::string_view> characters,
                                    std::optional<TokenId> end_of_text);

// Errors as of load_tokenizer.
std::unique_ptr<Tokenizer> read_small_tokenizer(const Path& file);

}  // namespace tessera
