#include "base/error.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

TEST(ErrorTest, MessageSaysWhatWhyWhereAndWhatToDo) {
  const Error error(ErrorKind::kData, "cannot read text: not UTF-8", "a.txt, byte 12",
                    "Convert it.");
  EXPECT_STREQ(error.what(), "cannot read text: not UTF-8 (a.txt, byte 12). Convert it.");
  EXPECT_EQ(error.kind(), ErrorKind::kData);
}

TEST(ErrorTest, PartsMayBeMissing) {
  EXPECT_STREQ(Error(ErrorKind::kUsage, "no config given").what(), "no config given.");
  EXPECT_STREQ(Error(ErrorKind::kUsage, "ends with a stop.").what(), "ends with a stop.");
}

}  // namespace
}  // namespace tessera
