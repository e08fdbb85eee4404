#include "base/process_memory.h"

#include <gtest/gtest.h>

#include <vector>

namespace tessera {
namespace {

TEST(ProcessMemoryTest, GrowsByWhatIsTouchedAndThePeakStays) {
  const ProcessMemory before = process_memory();
  ASSERT_GT(before.resident_bytes, 1u << 20) << "/proc/self/status is not readable";
  EXPECT_GE(before.peak_resident_bytes, before.resident_bytes);
  constexpr std::size_t kBytes = std::size_t{256} << 20;
  ProcessMemory during;
  {
    const std::vector<char> block(kBytes, 1);
    during = process_memory();
    EXPECT_GT(during.resident_bytes, before.resident_bytes + kBytes * 9 / 10) << block.size();
  }
  const ProcessMemory after = process_memory();
  EXPECT_LT(after.resident_bytes, during.resident_bytes - kBytes / 2);
  constexpr std::size_t kCountedInBatches = std::size_t{1} << 20;
  EXPECT_GE(after.peak_resident_bytes + kCountedInBatches, during.resident_bytes);
}

}  // namespace
}  // namespace tessera
