// GPT-2's byte-level BPE: split pattern, then byte-pair encoding of each piece. Owns: the tokenizer
// object. Not: its files (bpe_files.h), training (bpe_trainer.h).
#pragma once

#include <array>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/bpe_merger.h"
#include "tokenizer/piece_cache.h"
#include "tokenizer/tokenizer.h"

namespace tessera {

struct BpeModel {
  std::vector<std::string> tokens = {};  // bytes by id; empty: a gap
  std::vector<TokenMerge> merges = {};   // in the order of their ranks
  std::vector<SpecialToken> special_tokens = {};
  std::optional<TokenId> end_of_text = {};
};

class BpeTokenizer final : public Tokenizer {
 public:
  // Error{kCorrupt} if a special token contradicts the tokens. The ids in merges are those of
  // tokens (not checked).
  explicit BpeTokenizer(BpeModel model);

  std::string_view kind() const override { return "bpe"; }
  std::span<const TokenMerge> merges() const override { return merges_; }
  std::vector<TokenizerFile> files() const override;

 protected:
  // Error{kData} for a byte that the vocabulary lacks.
  void append_text(std::string_view text, std::size_t offset,
                   std::vector<TokenId>& ids) const override;
  std::size_t safe_split(std::string_view text, std::size_t target) const override;

 private:
  void check_bytes(std::string_view text, std::size_t offset) const;
  std::unique_ptr<PieceCache> take_cache() const;
  void give_cache(std::unique_ptr<PieceCache> cache) const;

  std::vector<TokenMerge> merges_;
  std::array<TokenId, 256> byte_ids_;
  bool has_all_bytes_ = true;
  std::unique_ptr<const BpeMerger> merger_;
  // One cache for each call at work; they outlive calls, so that short texts profit too.
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<PieceCache>> idle_caches_;
};

}  // namespace tessera
