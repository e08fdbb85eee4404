#include "ops/random_normal.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

namespace tessera {
namespace {

at::Tensor draw(std::int64_t count, std::uint64_t seed, std::string_view name) {
  at::Tensor tensor = at::empty({count});
  fill_normal(tensor, 2.0, seed, name);
  return tensor;
}

TEST(RandomNormalTest, HasTheMomentsOfANormalDistribution) {
  const at::Tensor x = draw(1000003, 1, "a");
  EXPECT_NEAR(x.mean().item<double>(), 0.0, 0.01);
  EXPECT_NEAR(x.std(false).item<double>(), 2.0, 0.01);
  EXPECT_NEAR(x.abs().le(2.0).to(at::kFloat).mean().item<double>(), 0.6827, 0.003);
  EXPECT_NEAR((x / 2).pow(4).mean().item<double>(), 3.0, 0.05);
}

TEST(RandomNormalTest, DependsOnSeedNameAndIndexOnly) {
  const at::Tensor x = draw(10001, 1, "a");
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  EXPECT_TRUE(at::equal(x, draw(10001, 1, "a")));
  at::set_num_threads(threads);
  EXPECT_TRUE(at::equal(x.narrow(0, 0, 77), draw(77, 1, "a")));
  EXPECT_FALSE(at::equal(x, draw(10001, 2, "a")));
  EXPECT_FALSE(at::equal(x, draw(10001, 1, "b")));
}

}  // namespace
}  // namespace tessera
