#include "base/philox.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

// Known answers of the Random123 distribution (kat_vectors, philox4x32 with 10 rounds).
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, 0),
            (PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32({~0u, ~0u, ~0u, ~0u}, ~std::uint64_t{0}),
            (PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0x299f31d0a4093822),
            (PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, ScaleIsTheHighHalfOfTheProduct) {
  EXPECT_EQ(scale_to(~std::uint64_t{0}, 10), 9u);
  EXPECT_EQ(scale_to(0, 10), 0u);
  EXPECT_EQ(scale_to(std::uint64_t{1} << 63, 10), 5u);
  // (2^64 - 1)^2 / 2^64 = 2^64 - 2 + 1/2^64
  EXPECT_EQ(scale_to(~std::uint64_t{0}, ~std::uint64_t{0}), ~std::uint64_t{0} - 1);
  EXPECT_EQ(scale_to(0x123456789abcdef0, 0xfedcba9876543210), 0x121fa00ad77d7422u);
}

}  // namespace
}  // namespace tessera
