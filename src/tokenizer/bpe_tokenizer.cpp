#include "tokenizer/bpe_tokenizer.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "base/error.h"
#include "tokenizer/bpe_files.h"
#include "tokenizer/split_pattern.h"

namespace tessera {
namespace {

std::string describe(std::span<const TokenMerge> merges) {
  std::string text = "bpe gpt2 ";
  text.reserve(text.size() + merges.size() * 12);
  for (const TokenMerge& merge : merges) {
    for (const TokenId id : {merge.left, merge.right, merge.merged}) {
      for (int shift = 0; shift < 32; shift += 8) {
        text += static_cast<char>(static_cast<std::uint32_t>(id) >> shift & 255);
      }
    }
  }
  return text;
}

}  // namespace

BpeTokenizer::BpeTokenizer(BpeModel model)
    : Tokenizer({.tokens = std::move(model.tokens),
                 .special_tokens = std::move(model.special_tokens),
                 .end_of_text = model.end_of_text}),
      merges_(std::move(model.merges)) {
  byte_ids_.fill(-1);
  const auto set_byte = [&](TokenId id) {
    if (!is_token(id) || token_bytes(id).size() != 1) return;
    TokenId& byte_id = byte_ids_[static_cast<unsigned char>(token_bytes(id)[0])];
    if (byte_id < 0) byte_id = id;
  };
  std::vector<bool> special(static_cast<std::size_t>(vocab_size()));
  for (const SpecialToken& token : special_tokens())
    special[static_cast<std::size_t>(token.id)] = true;
  for (TokenId id = 0; id < vocab_size(); ++id) {
    if (!special[static_cast<std::size_t>(id)]) set_byte(id);
  }
  // A special token of one byte stands for it in text only if nothing else does.
  for (const SpecialToken& token : special_tokens()) set_byte(token.id);
  has_all_bytes_ = std::ranges::count(byte_ids_, -1) == 0;
  merger_ = std::make_unique<const BpeMerger>(byte_ids_, merges_);
  finish_hash(describe(merges_));
}

std::vector<TokenizerFile> BpeTokenizer::files() const { return bpe_files(*this); }

void BpeTokenizer::check_bytes(std::string_view text, std::size_t offset) const {
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte_ids_[byte] >= 0) continue;
    static constexpr char kDigits[] = "0123456789ABCDEF";
    throw Error(
        ErrorKind::kData,
        std::string("cannot encode byte 0x") + kDigits[byte >> 4] + kDigits[byte & 15] +
            ": the vocabulary has no token for it",
        "byte " + std::to_string(offset + i) + " of the text",
        "Use a tokenizer whose vocabulary holds all 256 bytes; `tessera tokenizer train` makes "
        "such.");
  }
}

std::unique_ptr<PieceCache> BpeTokenizer::take_cache() const {
  const std::lock_guard lock(mutex_);
  if (idle_caches_.empty()) return std::make_unique<PieceCache>();
  std::unique_ptr<PieceCache> cache = std::move(idle_caches_.back());
  idle_caches_.pop_back();
  return cache;
}

void BpeTokenizer::give_cache(std::unique_ptr<PieceCache> cache) const {
  const std::lock_guard lock(mutex_);
  idle_caches_.push_back(std::move(cache));
}

void BpeTokenizer::append_text(std::string_view text, std::size_t offset,
                               std::vector<TokenId>& ids) const {
  if (!has_all_bytes_) check_bytes(text, offset);
  std::unique_ptr<PieceCache> cache = take_cache();
  const char* const end = text.data() + text.size();
  for (const char* begin = text.data(); begin < end;) {
    const char* const behind = end_of_piece(begin, end);
    const std::string_view piece(begin, static_cast<std::size_t>(behind - begin));
    begin = behind;
    if (cache->append(piece, end, ids)) continue;
    const std::size_t size = ids.size();
    merger_->append(piece, ids);
    cache->insert(piece, end, std::span(ids).subspan(size));
  }
  give_cache(std::move(cache));
}

std::size_t BpeTokenizer::safe_split(std::string_view text, std::size_t target) const {
  return safe_piece_boundary(text, target);
}

}  // namespace tessera
