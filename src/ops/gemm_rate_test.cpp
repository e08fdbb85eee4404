#include "ops/gemm_rate.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

TEST(GemmRateTest, LargeProductsRunAtAPlausibleRate) {
  const double rate = measure_gemm_rate({{256, 256, 256}}, at::kFloat, at::kCPU, 0.02);
  EXPECT_GT(rate, 1e8);
  EXPECT_LT(rate, 1e16);
  EXPECT_EQ(measure_gemm_rate({}, at::kFloat, at::kCPU, 0.02), 0.0);
}

}  // namespace
}  // namespace tessera
