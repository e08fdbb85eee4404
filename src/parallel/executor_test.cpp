#include "parallel/executor.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <cmath>

namespace tessera {
namespace {

// A chain small enough to know its gradients by hand: y = w · x, loss = Σ label · y.
class Scale final : public Head {
 public:
  explicit Scale(std::string name) : name_(std::move(name)) {}
  const std::string& name() const override { return name_; }
  std::vector<ParameterSpec> parameters() override {
    return {{.name = name_ + ".w",
             .shape = {1},
             .init = {Initialisation::Kind::kOnes},
             .decay = false,
             .slot = &weight_}};
  }
  at::Tensor forward(const at::Tensor& hidden, const BatchContext& context) override {
    const at::Tensor x = hidden.defined() ? hidden : context.ids.to(weight_.scalar_type());
    return x * weight_;
  }
  const at::Tensor& projection() const override { return weight_; }
  std::int64_t vocab_size() const override { return 1; }

 private:
  std::string name_;
  at::Tensor weight_;
};

class WeightedSum final : public Objective {
 public:
  double weight(const BatchContext& context) const override {
    return static_cast<double>(context.ids.numel());
  }
  LossSum forward(const Head&, const at::Tensor& hidden, const BatchContext& context,
                  double gradient_scale) override {
    const at::Tensor loss = (hidden.to(at::kFloat) * context.labels).sum();
    if (!loss.requires_grad()) return {loss, {}};
    // The contract: the value unscaled, its gradient scaled.
    const at::Tensor scaled = loss * gradient_scale;
    return {scaled + (loss - scaled).detach(), {}};
  }
};

class Descent final : public Optimizer {
 public:
  std::vector<std::string> state_names() const override { return {}; }
  void step(FlatShard& shard, const StepScalars& scalars) override {
    divisors.push_back(scalars.gradient_divisor);
    shard.parameters.sub_(shard.gradient / scalars.gradient_divisor, scalars.lr);
  }
  std::vector<double> divisors;
};

struct Fixture {
  explicit Fixture(Executor::Options options = {}) {
    chain.units.push_back(std::make_unique<Scale>("first"));
    chain.units.push_back(std::make_unique<Scale>("last"));
    executor = std::make_unique<Executor>(chain, objective, &optimizer, one_process(*communicator),
                                          options);
    const at::NoGradGuard no_grad;
    executor->units()[0].master("first.w").fill_(3);
    executor->units()[1].master("last.w").fill_(5);
    executor->weights_changed();
  }
  float weight(std::size_t unit) {
    return executor->units()[unit].master(unit == 0 ? "first.w" : "last.w").item<float>();
  }
  Chain chain;
  WeightedSum objective;
  Descent optimizer;
  std::unique_ptr<Communicator> communicator = make_single_process_communicator();
  std::unique_ptr<Executor> executor;
};

BatchContext batch(const std::vector<std::int64_t>& ids, const std::vector<std::int64_t>& labels) {
  BatchContext context;
  context.ids = at::tensor(ids, at::kLong).unsqueeze(0);
  context.labels = at::tensor(labels, at::kLong).unsqueeze(0);
  return context;
}

// loss sum = 15 · Σ x·label; mean over 3 elements; d/d first = 5 · Σ/3, d/d last = 3 · Σ/3, Σ = 2 +
// 6 + 20.
TEST(ExecutorTest, GradientsAreWeightedOverTheGlobalBatch) {
  for (const bool accumulate : {false, true}) {
    Fixture fixture;
    const std::vector<BatchContext> parts =
        accumulate ? std::vector<BatchContext>{batch({1}, {2}), batch({2, 4}, {3, 5})}
                   : std::vector<BatchContext>{batch({1, 2, 4}, {2, 3, 5})};
    const StepOutcome outcome = fixture.executor->train_step(parts, 0.01);
    EXPECT_NEAR(outcome.loss, 15 * 28 / 3.0, 1e-4);
    EXPECT_NEAR(outcome.grad_norm, std::hypot(5, 3) * 28 / 3.0, 1e-4);
    EXPECT_NEAR(fixture.weight(0), 3 - 0.01 * 5 * 28 / 3.0, 1e-5);
    EXPECT_NEAR(fixture.weight(1), 5 - 0.01 * 3 * 28 / 3.0, 1e-5);
    // Gradients are cleared: the same step again has the gradient of its own loss alone.
    const StepOutcome again = fixture.executor->train_step(parts, 0.0);
    EXPECT_NEAR(again.grad_norm, std::hypot(fixture.weight(0), fixture.weight(1)) * 28 / 3.0, 1e-4);
  }
}

TEST(ExecutorTest, ClippingDividesByOneFactor) {
  Fixture fixture({.clip = {.max_norm = 1.0}});
  const StepOutcome outcome = fixture.executor->train_step({batch({1, 2}, {1, 1})}, 0.1);
  for (const double divisor : fixture.optimizer.divisors)
    EXPECT_NEAR(divisor, outcome.grad_norm, 1e-5);
}

TEST(ExecutorTest, ANonFiniteValueChangesNothing) {
  Fixture fixture;
  fixture.executor->units()[0].master("first.w").fill_(INFINITY);
  int updates = 0;
  fixture.executor->before_update = [&](int) { ++updates; };
  const StepOutcome outcome = fixture.executor->train_step({batch({1}, {1})}, 0.1);
  EXPECT_FALSE(outcome.applied);
  EXPECT_EQ(outcome.not_finite, "loss");
  EXPECT_EQ(updates, 0);
  EXPECT_EQ(fixture.weight(1), 5);
  EXPECT_EQ(fixture.executor->applied_steps(), 0);
}

TEST(ExecutorTest, LossScaleFallsAfterAnOverflowAndIsRemovedFromGradients) {
  Fixture fixture({.loss_scale = {.scale = 1024, .enabled = true}});
  const StepOutcome outcome = fixture.executor->train_step({batch({1}, {1})}, 0.1);
  EXPECT_NEAR(outcome.grad_norm, std::hypot(5, 3), 1e-4);
  EXPECT_NEAR(fixture.weight(0), 3 - 0.1 * 5, 1e-5);

  // Squares of gradients of 5 and 3 times this scale are beyond f32.
  Fixture high({.loss_scale = {.scale = 1e20, .enabled = true}});
  const StepOutcome overflow = high.executor->train_step({batch({1}, {1})}, 0.1);
  EXPECT_FALSE(overflow.applied);
  EXPECT_TRUE(std::isfinite(overflow.loss));
  EXPECT_EQ(high.executor->loss_scale().scale, 5e19);
}

TEST(ExecutorTest, ALossThatIsNotFiniteLeavesTheLossScaleAlone) {
  Fixture fixture({.loss_scale = {.scale = 1024, .enabled = true}});
  fixture.executor->units()[0].master("first.w").fill_(INFINITY);
  EXPECT_FALSE(fixture.executor->train_step({batch({1}, {1})}, 0.1).applied);
  EXPECT_EQ(fixture.executor->loss_scale().scale, 1024);
}

TEST(ExecutorTest, ComputingCopyFollowsTheMasterWeights) {
  Fixture fixture({.compute_dtype = at::kBFloat16});
  const BatchContext context = batch({1}, {1});
  EXPECT_NEAR(fixture.executor->evaluate(context).loss, 15, 1e-6);
  fixture.executor->train_step({context}, 0.25);
  EXPECT_NEAR(fixture.weight(0), 3 - 0.25 * 5, 1e-6);
  EXPECT_NEAR(fixture.executor->evaluate(context).loss, (3 - 0.25 * 5) * (5 - 0.25 * 3), 0.05);
}

TEST(ExecutorTest, UnitsAreAnnouncedBeforeTheyAreRewritten) {
  Fixture fixture;
  std::vector<float> seen;
  fixture.executor->before_update = [&](int unit) {
    seen.push_back(fixture.weight(static_cast<std::size_t>(unit)));
  };
  fixture.executor->train_step({batch({1}, {1})}, 0.1);
  EXPECT_EQ(seen, (std::vector<float>{3, 5}));
}

}  // namespace
}  // namespace tessera
