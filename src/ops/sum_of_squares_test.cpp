#include "ops/sum_of_squares.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cmath>

namespace tessera {
namespace {

TEST(SumOfSquaresTest, IsExactEnoughAndTheSameAtAnyThreadCount) {
  const at::Tensor x = at::randn({1234567});
  const double sum = sum_of_squares(x);
  EXPECT_NEAR(sum / x.to(at::kDouble).square().sum().item<double>(), 1.0, 1e-7);
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  EXPECT_EQ(sum, sum_of_squares(x));
  at::set_num_threads(threads);
  EXPECT_EQ(sum_of_squares(at::empty({0})), 0.0);
}

TEST(SumOfSquaresTest, OneBadElementIsSeen) {
  at::Tensor x = at::zeros({10000});
  x[9999] = std::nan("");
  EXPECT_FALSE(std::isfinite(sum_of_squares(x)));
  x[9999] = INFINITY;
  EXPECT_FALSE(std::isfinite(sum_of_squares(x)));
}

}  // namespace
}  // namespace tessera
