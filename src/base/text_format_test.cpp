#include "base/text_format.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace tessera {
namespace {

TEST(TextFormatTest, CountsAreGroupedByThousands) {
  EXPECT_EQ(format_count(0), "0");
  EXPECT_EQ(format_count(999), "999");
  EXPECT_EQ(format_count(1000), "1,000");
  EXPECT_EQ(format_count(1003854), "1,003,854");
  EXPECT_EQ(format_count(-123456), "-123,456");
  EXPECT_EQ(format_count(std::numeric_limits<std::int64_t>::min()), "-9,223,372,036,854,775,808");
}

TEST(TextFormatTest, ShortCountsRoundIntoTheNextUnit) {
  EXPECT_EQ(format_short_count(950), "950");
  EXPECT_EQ(format_short_count(999.7), "1.0K");
  EXPECT_EQ(format_short_count(12345), "12.3K");
  EXPECT_EQ(format_short_count(999960), "1.0M");
  EXPECT_EQ(format_short_count(124439808), "124.4M");
  EXPECT_EQ(format_short_count(1.5e9), "1.5B");
  EXPECT_EQ(format_short_count(2e15), "2000.0T");
  EXPECT_EQ(format_short_count(std::nan("")), "nan");
}

TEST(TextFormatTest, BytesAreInPowersOf1024) {
  EXPECT_EQ(format_bytes(512), "512B");
  EXPECT_EQ(format_bytes(1536), "1.5KiB");
  EXPECT_EQ(format_bytes(2254857830u), "2.1GiB");
  EXPECT_EQ(format_bytes((1ull << 20) - 1), "1.0MiB");
  EXPECT_EQ(format_bytes(std::numeric_limits<std::uint64_t>::max()), "16384.0PiB");
}

TEST(TextFormatTest, DurationsAreClocks) {
  EXPECT_EQ(format_duration(4353), "01:12:33");
  EXPECT_EQ(format_duration(59.6), "00:01:00");
  EXPECT_EQ(format_duration(360000), "100:00:00");
  EXPECT_EQ(format_duration(-1), "--:--:--");
  EXPECT_EQ(format_duration(std::nan("")), "--:--:--");
  EXPECT_EQ(format_duration(std::numeric_limits<double>::infinity()), "--:--:--");
  EXPECT_EQ(format_short_duration(753), "12:33");
  EXPECT_EQ(format_short_duration(4353), "1:12:33");
  EXPECT_EQ(format_short_duration(-1), "?");
}

TEST(TextFormatTest, FixedNamesWhatIsNotFinite) {
  EXPECT_EQ(format_fixed(3.21449, 4), "3.2145");
  EXPECT_EQ(format_fixed(-std::nan(""), 2), "nan");
  EXPECT_EQ(format_fixed(-std::numeric_limits<double>::infinity(), 2), "-inf");
  EXPECT_EQ(format_fixed(std::numeric_limits<double>::max(), 1).size(), 311u);
}

}  // namespace
}  // namespace tessera
