// Shuffling without a list. Owns: a bijection of [0, size) keyed by (seed, epoch).
#pragma once

#include <array>
#include <cstdint>

namespace tessera {

// A balanced Feistel network over the smallest 2^(2h) >= size; values that fall outside are sent
// through again until they fall inside (cycle walking: Black and Rogaway, "Ciphers with Arbitrary
// Finite Domains", 2002), fewer than 4 times on average. Constant memory; immutable.
class Permutation {
 public:
  Permutation(std::uint64_t size, std::uint64_t seed, std::uint64_t epoch);
  std::uint64_t size() const { return size_; }
  std::uint64_t operator()(std::uint64_t index) const;  // index < size()

 private:
  static constexpr int kRounds = 8;
  std::uint64_t size_;
  unsigned half_bits_ = 1;
  std::array<std::uint64_t, kRounds> keys_;
};

}  // namespace tessera
