#include "base/log.h"

#include <gtest/gtest.h>

#include <string>

namespace tessera {
namespace {

TEST(LogTest, LevelsFilterAndWarningsAlwaysShow) {
  std::string seen;
  Log quiet(LogLevel::kQuiet, [&](std::string_view line) { seen += std::string(line) + ";"; });
  quiet.info("a");
  quiet.detail("b");
  quiet.warning("c");
  EXPECT_EQ(seen, "warning: c;");
  seen.clear();
  Log normal(LogLevel::kNormal, [&](std::string_view line) { seen += std::string(line) + ";"; });
  normal.info("a");
  normal.detail("b");
  EXPECT_EQ(seen, "a;");
}

}  // namespace
}  // namespace tessera
