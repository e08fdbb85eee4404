// Philox4x32-10, a counter-based random number generator: numbers are a pure function of a key and
// a counter, so that any of them can be had in any order without state.
// Source: Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011.
#pragma once

#include <array>
#include <cstdint>

namespace tessera {

using PhiloxBlock = std::array<std::uint32_t, 4>;

constexpr PhiloxBlock philox4x32(PhiloxBlock counter, std::uint64_t key) {
  auto k0 = static_cast<std::uint32_t>(key), k1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{0xD2511F53} * counter[0];
    const std::uint64_t p1 = std::uint64_t{0xCD9E8D57} * counter[2];
    counter = {
        static_cast<std::uint32_t>(p1 >> 32) ^ counter[1] ^ k0, static_cast<std::uint32_t>(p1),
        static_cast<std::uint32_t>(p0 >> 32) ^ counter[3] ^ k1, static_cast<std::uint32_t>(p0)};
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  return counter;
}

// 64 random bits for (key, index) in one of 2^64 independent streams.
constexpr std::uint64_t philox_bits(std::uint64_t key, std::uint64_t stream, std::uint64_t index) {
  const PhiloxBlock block =
      philox4x32({static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32),
                  static_cast<std::uint32_t>(stream), static_cast<std::uint32_t>(stream >> 32)},
                 key);
  return block[0] | std::uint64_t{block[1]} << 32;
}

// Maps 64 random bits to [0, n), n > 0; no value is off its share by more than n / 2^64.
constexpr std::uint64_t scale_to(std::uint64_t bits, std::uint64_t n) {
  const std::uint64_t low = (bits & 0xFFFFFFFF) * (n & 0xFFFFFFFF);
  const std::uint64_t middle1 = (bits >> 32) * (n & 0xFFFFFFFF) + (low >> 32);
  const std::uint64_t middle2 = (bits & 0xFFFFFFFF) * (n >> 32) + (middle1 & 0xFFFFFFFF);
  return (bits >> 32) * (n >> 32) + (middle1 >> 32) + (middle2 >> 32);
}

}  // namespace tessera
