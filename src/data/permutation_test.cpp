#include "data/permutation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace tessera {
namespace {

TEST(Permutation, IsABijectionForEverySize) {
  for (std::uint64_t size = 1; size < 600; ++size) {
    const Permutation permute(size, 42, size % 3);
    std::vector<bool> seen(size, false);
    for (std::uint64_t i = 0; i < size; ++i) {
      const std::uint64_t value = permute(i);
      ASSERT_LT(value, size);
      ASSERT_FALSE(seen[value]) << "size " << size << " index " << i;
      seen[value] = true;
    }
  }
  const Permutation large(1'000'003, 7, 1);
  std::vector<bool> seen(large.size(), false);
  for (std::uint64_t i = 0; i < large.size(); ++i) seen[large(i)] = true;
  for (const bool hit : seen) ASSERT_TRUE(hit);
}

TEST(Permutation, IsAPureFunctionOfSeedAndEpoch) {
  const std::uint64_t n = 1000;
  const Permutation a(n, 1, 0), same(n, 1, 0), other_epoch(n, 1, 1), other_seed(n, 2, 0);
  int equal_epoch = 0, equal_seed = 0;
  for (std::uint64_t i = 0; i < n; ++i) {
    EXPECT_EQ(a(i), same(i));
    equal_epoch += a(i) == other_epoch(i);
    equal_seed += a(i) == other_seed(i);
  }
  // A random permutation has one fixed point on average; 12 has a chance below 1e-9.
  EXPECT_LT(equal_epoch, 12);
  EXPECT_LT(equal_seed, 12);
}

// Which value comes first, and which value follows it, must be near uniform over seeds.
TEST(Permutation, PlacesAreUniform) {
  for (const std::uint64_t size : {3, 5, 16, 50}) {
    const int draws = 4000 * static_cast<int>(size);
    std::vector<double> first(size, 0), next(size, 0);
    for (int seed = 0; seed < draws; ++seed) {
      const Permutation permute(size, static_cast<std::uint64_t>(seed), 3);
      const std::uint64_t a = permute(0), b = permute(1);
      first[a] += 1;
      next[(b + size - a) % size] += 1;
    }
    double chi_first = 0, chi_next = 0;
    const double expected_next = draws / static_cast<double>(size - 1);
    for (std::uint64_t v = 0; v < size; ++v) {
      chi_first += std::pow(first[v] - 4000, 2) / 4000;
      if (v > 0) chi_next += std::pow(next[v] - expected_next, 2) / expected_next;
    }
    const double freedom = static_cast<double>(size - 1);
    EXPECT_LT(chi_first, freedom + 6 * std::sqrt(2 * freedom)) << size;
    EXPECT_LT(chi_next, freedom + 6 * std::sqrt(2 * freedom)) << size;
  }
}

TEST(Permutation, HandlesSizesNear64Bits) {
  const std::uint64_t size = (std::uint64_t{1} << 62) + 12345;
  const Permutation permute(size, 5, 0);
  for (std::uint64_t i = 0; i < 1000; ++i) EXPECT_LT(permute(i), size);
  EXPECT_NE(permute(0), permute(1));
}

}  // namespace
}  // namespace tessera
