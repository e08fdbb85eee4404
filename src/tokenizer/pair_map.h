// A flat hash table from a pair of token ids to a number: open addressing with linear probing, no
// removal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace tessera {

class PairMap {
 public:
  static constexpr std::uint32_t kNone = 0xFFFFFFFF;

  // Room for `expected` pairs without growing.
  explicit PairMap(std::size_t expected = 0) { resize(expected); }

  // The value, or kNone. Ids are not negative.
  std::uint32_t find(TokenId left, TokenId right) const {
    const std::uint64_t key = key_of(left, right);
    for (std::size_t at = start(key);; at = (at + 1) & mask_) {
      if (slots_[at].key == key) return slots_[at].value;
      if (slots_[at].key == kEmpty) return kNone;
    }
  }

  // Stores `value` (not kNone) unless the pair is there. Returns what is then stored.
  std::uint32_t insert(TokenId left, TokenId right, std::uint32_t value) {
    if ((size_ + 1) * 2 > slots_.size()) resize(size_ * 2);
    return insert_key(key_of(left, right), value);
  }

  std::size_t size() const { return size_; }

 private:
  struct Slot {
    std::uint64_t key = kEmpty;
    std::uint32_t value = kNone;
  };
  static constexpr std::uint64_t kEmpty = ~std::uint64_t{0};

  static std::uint64_t key_of(TokenId left, TokenId right) {
    return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 |
           static_cast<std::uint32_t>(right);
  }
  std::size_t start(std::uint64_t key) const {
    return static_cast<std::size_t>((key * 0x9E3779B97F4A7C15ULL) >> shift_);
  }
  std::uint32_t insert_key(std::uint64_t key, std::uint32_t value) {
    std::size_t at = start(key);
    while (slots_[at].key != kEmpty && slots_[at].key != key) at = (at + 1) & mask_;
    if (slots_[at].key == kEmpty) {
      slots_[at] = {key, value};
      ++size_;
    }
    return slots_[at].value;
  }
  void resize(std::size_t expected) {
    int bits = 4;
    while ((std::size_t{1} << bits) < expected * 2 + 2) ++bits;
    std::vector<Slot> old = std::exchange(slots_, std::vector<Slot>(std::size_t{1} << bits));
    mask_ = slots_.size() - 1;
    shift_ = 64 - bits;
    size_ = 0;
    for (const Slot& slot : old) {
      if (slot.key != kEmpty) insert_key(slot.key, slot.value);
    }
  }

  std::vector<Slot> slots_;
  std::size_t mask_ = 0, size_ = 0;
  int shift_ = 0;
};

}  // namespace tessera
