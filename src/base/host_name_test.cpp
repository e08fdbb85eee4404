#include "base/host_name.h"

#include <gtest/gtest.h>
#include <sys/utsname.h>

namespace tessera {
namespace {

// uname() is another way to the same name.
TEST(HostNameTest, IsTheSystems) {
  utsname system{};
  ASSERT_EQ(::uname(&system), 0);
  EXPECT_EQ(host_name(), system.nodename);
}

}  // namespace
}  // namespace tessera
