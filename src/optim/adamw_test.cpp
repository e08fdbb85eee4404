#include "optim/adamw.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "optim/registry.h"

namespace tessera {
namespace {

// One element, two steps, worked out by the formulas of the paper in f64.
TEST(AdamWTest, FollowsTheFormulas) {
  AdamW optimizer({.beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1});
  FlatShard shard{
      .parameters = at::full({1}, 2.0), .gradient = at::full({1}, 0.0), .state = {}, .decay = true};
  shard.state = {at::zeros({1}), at::zeros({1})};
  double parameter = 2.0, m = 0, v = 0;
  for (int step = 1; step <= 2; ++step) {
    const double gradient = 0.3 * step, lr = 0.01;
    shard.gradient.fill_(gradient * 4);
    optimizer.step(shard, {.lr = lr, .step = step, .gradient_divisor = 4});
    parameter -= lr * 0.1 * parameter;
    m = 0.9 * m + 0.1 * gradient;
    v = 0.95 * v + 0.05 * gradient * gradient;
    parameter -=
        lr * (m / (1 - std::pow(0.9, step))) / (std::sqrt(v / (1 - std::pow(0.95, step))) + 1e-8);
    EXPECT_NEAR(shard.parameters.item<double>(), parameter, 1e-6);
  }
  shard.decay = false;
  shard.gradient.fill_(0);
  shard.state[0].fill_(0);
  const double before = shard.parameters.item<double>();
  optimizer.step(shard, {.lr = 0.01, .step = 3});
  EXPECT_EQ(shard.parameters.item<double>(), before);
}

TEST(OptimizerRegistryTest, NamesAreChecked) {
  OptimConfig config;
  EXPECT_EQ(make_optimizer(config)->state_names().size(), 2u);
  config.name = "adam";
  EXPECT_THROW(make_optimizer(config), Error);
}

}  // namespace
}  // namespace tessera
