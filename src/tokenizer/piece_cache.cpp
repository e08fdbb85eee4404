#include "tokenizer/piece_cache.h"

#include <algorithm>

namespace tessera {

bool PieceCache::append_long(std::string_view piece, std::vector<TokenId>& ids) const {
  if (piece.size() > kLongBytes) return false;
  const auto found = long_.find(piece);
  if (found == long_.end()) return false;
  ids.insert(ids.end(), found->second.begin(), found->second.end());
  return true;
}

void PieceCache::insert(std::string_view piece, const char* text_end,
                        std::span<const TokenId> ids) {
  if (piece.size() > kLongBytes) return;
  if (piece.size() <= kShortBytes && ids.size() <= kShortIds) {
    const Key key = key_of(piece, text_end);
    Set& set = sets_[set_of(key)];
    set.entries[1] = set.entries[0];
    set.entries[0].key = key;
    set.entries[0].count = static_cast<std::uint32_t>(ids.size());
    std::ranges::copy(ids, set.entries[0].ids.begin());
    return;
  }
  if (long_.size() >= kMostLong) long_.clear();
  long_.try_emplace(std::string(piece), ids.begin(), ids.end());
}

}  // namespace tessera
