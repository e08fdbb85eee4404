#include "data/permutation.h"

#include <bit>

#include "base/philox.h"

namespace tessera {
namespace {

constexpr std::uint64_t kShuffleStream = 0x73687566666c6500;  // apart from the draws of windows

// The finaliser of SplitMix64 (Steele, Lea, Flood 2014).
std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

}  // namespace

Permutation::Permutation(std::uint64_t size, std::uint64_t seed, std::uint64_t epoch)
    : size_(size), keys_{} {
  const auto bits = static_cast<unsigned>(size > 1 ? std::bit_width(size - 1) : 1);
  half_bits_ = (bits + 1) / 2;
  for (std::uint64_t i = 0; i < kRounds; ++i) {
    keys_[i] = philox_bits(seed, kShuffleStream + i, epoch);
  }
}

std::uint64_t Permutation::operator()(std::uint64_t index) const {
  const std::uint64_t mask = (std::uint64_t{1} << half_bits_) - 1;
  do {
    std::uint64_t left = index >> half_bits_, right = index & mask;
    for (const std::uint64_t key : keys_) {
      const std::uint64_t next = left ^ (mix(right + key) >> (64 - half_bits_));
      left = right;
      right = next;
    }
    index = left << half_bits_ | right;
  } while (index >= size_);
  return index;
}

}  // namespace tessera
