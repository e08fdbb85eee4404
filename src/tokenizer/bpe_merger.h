// Byte-pair encoding of one piece of text. Owns: the merge table and the two ways to apply it. Not:
// the split into pieces, caching.
#pragma once

#include <array>
#include <span>
#include <string_view>
#include <vector>

#include "tokenizer/pair_map.h"
#include "tokenizer/tokenizer.h"

namespace tessera {

// Starts from the bytes and merges, again and again, the pair of lowest rank, the leftmost first
// among equals (Sennrich et al. 2016, as OpenAI's and Hugging Face's implementations apply it).
// Immutable; safe from several threads.
class BpeMerger {
 public:
  // byte_ids: the token of each byte, or -1. Merges in the order of their ranks; of a pair given
  // twice the first counts.
  BpeMerger(const std::array<TokenId, 256>& byte_ids, std::span<const TokenMerge> merges);

  // Appends the ids of `piece`, which holds only bytes that have a token. Time: quadratic up to
  // kShort bytes, then O(n log n). Error{kResource} from 4 GiB on.
  void append(std::string_view piece, std::vector<TokenId>& ids) const;

  // Pieces up to this length take the quadratic way, which is faster for them.
  static constexpr std::size_t kShort = 96;

 private:
  void append_short(std::string_view piece, std::vector<TokenId>& ids) const;
  void append_long(std::string_view piece, std::vector<TokenId>& ids) const;

  std::array<TokenId, 256> byte_ids_;
  PairMap ranks_;
  std::vector<TokenId> merged_;  // by rank
};

}  // namespace tessera
