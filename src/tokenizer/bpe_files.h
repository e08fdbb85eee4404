// The file layouts of byte-level BPE. Owns: reading and writing OpenAI's and Hugging Face's files.
// Not: which layout a folder holds (load_tokenizer).
#pragma once

#include <memory>
#include <vector>

#include "tokenizer/bpe_tokenizer.h"

namespace tessera {

// tokenizer.json. Error{kCorrupt} for anything that GPT-2's byte-level BPE does not do (another
// model, a normalizer, another pre-tokenizer, a post-processor that adds tokens, added tokens that
// absorb white space), naming it. Settings for truncation and padding are of no concern here. The
// end of text is eos_token of tokenizer_config.json or special_tokens_map.json beside it, else
// <|endoftext|>.
std::unique_ptr<Tokenizer> load_bpe_tokenizer_json(const Path& file);

// vocab.json + merges.txt, or encoder.json + vocab.bpe: the same content under two names. Special
// tokens are the end of text (as above) and what special_tokens_map.json and added_tokens.json
// beside them name.
std::unique_ptr<Tokenizer> load_bpe_vocabulary(const Path& vocabulary, const Path& merges);

// vocab.json, merges.txt, tokenizer.json, tokenizer_config.json, special_tokens_map.json, as
// Hugging Face's `tokenizers` and `transformers` read them.
std::vector<TokenizerFile> bpe_files(const BpeTokenizer& tokenizer);

}  // namespace tessera
