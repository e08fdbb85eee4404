// The ids of pieces seen before: most words of a text come again. Owns: a bounded table for short
// pieces with few ids, and a map for others. Belongs to one thread at a time.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/hash.h"
#include "tokenizer/tokenizer.h"

namespace tessera {

class PieceCache {
 public:
  PieceCache() : sets_(std::size_t{1} << kSetBits) {}

  // Appends the ids of `piece` and returns true if they are known. Reads up to text_end, which is
  // not before the piece's end.
  bool append(std::string_view piece, const char* text_end, std::vector<TokenId>& ids) {
    if (piece.size() > kShortBytes) return append_long(piece, ids);
    const Key key = key_of(piece, text_end);
    for (const Entry& entry : sets_[set_of(key)].entries) {
      if (entry.key == key) {
        const std::size_t size = ids.size();
        ids.resize(size + entry.count);
        for (std::uint32_t i = 0; i < entry.count; ++i) ids[size + i] = entry.ids[i];
        return true;
      }
    }
    return append_long(piece, ids);
  }

  // Remembers the ids of `piece`, perhaps in place of another's.
  void insert(std::string_view piece, const char* text_end, std::span<const TokenId> ids);

 private:
  static constexpr std::size_t kShortBytes = 15, kShortIds = 3, kLongBytes = 256;
  static constexpr std::size_t kMostLong = 32768;
  static constexpr int kSetBits = 15;

  struct Key {
    std::uint64_t low = 0, high = 0;  // the bytes, zeros, and the length in the last byte
    bool operator==(const Key&) const = default;
  };
  struct Entry {
    Key key;
    std::array<TokenId, kShortIds> ids;
    std::uint32_t count = 0;
  };
  struct alignas(64) Set {  // one cache line; the piece stored last comes first
    std::array<Entry, 2> entries{};
  };
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const { return hash64(text); }
  };

  static Key key_of(std::string_view piece, const char* text_end) {
    Key key;
    if (text_end - piece.data() >= 16) {
      std::memcpy(&key, piece.data(), 16);
      if (piece.size() < 8) {
        key.low &= (std::uint64_t{1} << 8 * piece.size()) - 1;
        key.high = 0;
      } else {
        key.high &= (std::uint64_t{1} << 8 * (piece.size() - 8)) - 1;
      }
    } else {
      std::memcpy(&key, piece.data(), piece.size());
    }
    key.high |= std::uint64_t{piece.size()} << 56;
    return key;
  }
  static std::size_t set_of(const Key& key) {
    std::uint64_t mixed = key.low * 0x9E3779B97F4A7C15ULL;
    mixed ^= mixed >> 32;
    mixed = (mixed + key.high) * 0xD6E8FEB86659FD93ULL;
    return static_cast<std::size_t>(mixed >> (64 - kSetBits));
  }
  bool append_long(std::string_view piece, std::vector<TokenId>& ids) const;

  std::vector<Set> sets_;
  std::unordered_map<std::string, std::vector<TokenId>, Hash, std::equal_to<>> long_;
};

}  // namespace tessera
