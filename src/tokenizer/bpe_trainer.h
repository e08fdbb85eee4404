// Training of a byte-level BPE with GPT-2's split pattern. Owns: counting words and choosing
// merges. Not: reading files.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/hash.h"
#include "tokenizer/bpe_tokenizer.h"

namespace tessera {

// What to do when the text has too few repeated pairs for the vocabulary that was asked for.
enum class Shortfall {
  kError,    // Error{kData} that names the size reached
  kSmaller,  // a smaller vocabulary; compare vocab_size()
};

struct BpeTrainingOptions {
  std::int64_t vocab_size = 0;  // all ids: 256 bytes, merges, special tokens, <|endoftext|>
  std::vector<std::string> special_tokens =
      {};                      // beside <|endoftext|>; their ids come right before it
  std::int64_t min_count = 2;  // pairs that occur less often are not merged
  Shortfall shortfall = Shortfall::kError;
  int threads = 1;
};

// Ids: 0 to 255 the bytes in the order of GPT-2's vocabulary, then the merges in the order they
// were chosen, then special_tokens, last <|endoftext|>. The next merge is the most frequent pair;
// among equals the one with the smaller left id, then the smaller right id (Hugging Face's rule).
// So the result depends on the texts only: not on their order, the number of threads or any hash. A
// pair whose bytes would be spelled like a special token is never merged; a pair whose bytes are a
// token already becomes that token.
class BpeTrainer {
 public:
  // Error{kConfig} for a vocabulary too small for bytes and special tokens, and for special tokens
  // that are empty, no UTF-8, repeated or a byte's spelling.
  explicit BpeTrainer(BpeTrainingOptions options);

  // Counts the words of a text. Words do not reach from one text into the next; special tokens in
  // it are plain text.
  void add(std::string_view text);

  // Error{kData} if no text was added, or on a shortfall. Memory: about 24 bytes for each byte of
  // the distinct words.
  std::unique_ptr<BpeTokenizer> train() const;

  std::size_t distinct_words() const { return words_.size(); }

 private:
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const { return hash64(text); }
  };
  BpeTrainingOptions options_;
  std::unordered_map<std::string, std::int64_t, Hash, std::equal_to<>>
      words_;  // and how often each occurs
};

}  // namespace tessera
