#include "inference/stop_text.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/philox.h"

namespace tessera {
namespace {

TEST(StopText, CutsBeforeAStopStringInsideOneToken) {
  StopText text({"END"});
  EXPECT_TRUE(text.append("one END two"));
  EXPECT_EQ(text.text(), "one ");
  EXPECT_EQ(text.settled(), 4u);
}

TEST(StopText, FindsStopStringsAcrossTokens) {
  StopText text({"\n\n"});
  EXPECT_FALSE(text.append("a\n"));
  EXPECT_EQ(text.settled(), 1u);  // the newline may be the first half
  EXPECT_FALSE(text.append("b\n"));
  EXPECT_TRUE(text.append("\nc"));
  EXPECT_EQ(text.text(), "a\nb");
}

TEST(StopText, HoldsBackTheLongestPossibleBeginning) {
  StopText text({"aab", "xy"});
  EXPECT_FALSE(text.append("caa"));
  EXPECT_EQ(text.settled(), 1u);
  EXPECT_FALSE(text.append("a"));
  EXPECT_EQ(text.settled(), 2u);
  EXPECT_FALSE(text.append("x"));
  EXPECT_EQ(text.settled(), 4u);
}

TEST(StopText, FirstEndCountsThenTheLongest) {
  StopText one({"abc", "b"});
  EXPECT_TRUE(one.append("zabc"));
  EXPECT_EQ(one.text(), "za");
  StopText two({"b", "ab"});
  EXPECT_TRUE(two.append("zab"));
  EXPECT_EQ(two.text(), "z");
}

TEST(StopText, ResultDoesNotDependOnTokenBoundaries) {
  const std::vector<std::string> stops = {"abca", "bb", "cab", "aaaa"};
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    std::string bytes;
    for (std::uint64_t i = 0; i < 40; ++i) {
      bytes += static_cast<char>('a' + scale_to(philox_bits(seed, 0, i), 3));
    }
    StopText single(stops), pieces(stops);
    bool single_stopped = false, pieces_stopped = false;
    for (std::size_t i = 0; i < bytes.size() && !single_stopped; ++i) {
      single_stopped = single.append(std::string_view(bytes).substr(i, 1));
    }
    std::size_t shown = 0;
    for (std::size_t i = 0, n = 0; i < bytes.size() && !pieces_stopped; i += n) {
      n = 1 + static_cast<std::size_t>(scale_to(philox_bits(seed, 1, i), 6));
      pieces_stopped = pieces.append(std::string_view(bytes).substr(i, n));
      EXPECT_GE(pieces.text().size(), shown);  // what was settled is never taken back
      EXPECT_GE(pieces.settled(), shown);
      shown = pieces.settled();
    }
    EXPECT_EQ(single_stopped, pieces_stopped);
    EXPECT_EQ(single.text(), pieces.text()) << bytes;
  }
}

TEST(StopText, NoStopStringsHoldNothingBack) {
  StopText text({});
  EXPECT_FALSE(text.append("abc"));
  EXPECT_EQ(text.settled(), 3u);
}

TEST(StopText, EmptyStopStringIsAnError) { EXPECT_THROW(StopText({""}), Error); }

}  // namespace
}  // namespace tessera
