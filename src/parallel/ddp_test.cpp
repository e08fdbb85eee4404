// Data parallel by the executor alone: ranks are threads, the chain is small enough to know its
// gradients by hand. Equality with one process on a real model: tests/distributed/.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <csignal>
#include <functional>

#include "parallel/executor.h"
#include "parallel/thread_ranks.h"

namespace tessera {
namespace {

// y = w · x, elementwise over a vector of weights.
class Scaling final : public Head {
 public:
  Scaling(std::string name, bool trainable) : name_(std::move(name)), trainable_(trainable) {}
  const std::string& name() const override { return name_; }
  std::vector<ParameterSpec> parameters() override {
    return {{.name = name_ + ".w",
             .shape = {3},
             .init = {Initialisation::Kind::kOnes},
             .trainable = trainable_,
             .slot = &weight_}};
  }
  at::Tensor forward(const at::Tensor& hidden, const BatchContext& context) override {
    const at::Tensor x = hidden.defined() ? hidden : context.ids.to(at::kFloat);
    return x * weight_;
  }
  const at::Tensor& projection() const override { return weight_; }
  std::int64_t vocab_size() const override { return 1; }

 private:
  std::string name_;
  bool trainable_;
  at::Tensor weight_;
};

class SumOfOutputs final : public Objective {
 public:
  double weight(const BatchContext& context) const override {
    return static_cast<double>(context.ids.size(0));
  }
  LossSum forward(const Head&, const at::Tensor& hidden, const BatchContext&,
                  double gradient_scale) override {
    const at::Tensor loss = hidden.sum();
    if (!loss.requires_grad()) return {loss, {}};
    const at::Tensor scaled = loss * gradient_scale;
    return {scaled + (loss - scaled).detach(), {}};
  }
};

class SmallSteps final : public Optimizer {
 public:
  std::vector<std::string> state_names() const override { return {}; }
  void step(FlatShard& shard, const StepScalars& scalars) override {
    shard.parameters.sub_(shard.gradient / scalars.gradient_divisor, scalars.lr);
  }
};

struct Rank {
  Rank(const MeshGroups& groups, const Executor::Options& options,
       std::vector<bool> trainable = {true, true, true}) {
    for (std::size_t unit = 0; unit < trainable.size(); ++unit) {
      chain.units.push_back(std::make_unique<Scaling>("u" + std::to_string(unit), trainable[unit]));
    }
    executor = std::make_unique<Executor>(chain, objective, &optimizer, groups, options);
    const at::NoGradGuard no_grad;
    for (FlatUnit& unit : executor->units()) unit.initialise(1);
    executor->weights_changed();
  }
  std::vector<float> weights() const {
    std::vector<float> values;
    for (const FlatUnit& unit : executor->units()) {
      const at::Tensor w = unit.master(unit.name() + ".w");
      values.insert(values.end(), w.const_data_ptr<float>(), w.const_data_ptr<float>() + 3);
    }
    return values;
  }
  Chain chain;
  SumOfOutputs objective;
  SmallSteps optimizer;
  std::unique_ptr<Executor> executor;
};

BatchContext rows(const std::vector<std::int64_t>& firsts) {
  BatchContext context;
  context.ids = at::empty({static_cast<std::int64_t>(firsts.size()), 3}, at::kLong);
  for (std::size_t i = 0; i < firsts.size(); ++i) {
    for (int j = 0; j < 3; ++j) context.ids[static_cast<std::int64_t>(i)][j] = firsts[i] * (j + 1);
  }
  return context;
}

// Runs `body` as each of n replicas.
void run_ranks(int n, const std::function<void(const MeshGroups&)>& body) {
  run_thread_ranks({.shard = 1, .replica = n}, body);
}

struct Result {
  std::vector<float> weights;
  StepOutcome first;
};

Result alone(const std::vector<BatchContext>& batches, const Executor::Options& options) {
  const auto single = make_single_process_communicator();
  Rank rank(one_process(*single), options);
  Result result;
  result.first = rank.executor->train_step(batches, 0.01);
  rank.executor->train_step(batches, 0.01);
  result.weights = rank.weights();
  return result;
}

TEST(DdpTest, UnequalAndEmptyMicroBatchesTrainAsOneProcess) {
  // Rows 1 2 3 4 5, two micro-batches a rank: one rank has three rows, one two, one none.
  const std::vector<std::vector<BatchContext>> parts = {
      {rows({1}), rows({2, 3})}, {rows({4}), rows({5})}, {rows({}), rows({})}};
  for (const ReduceWhen reduce : {ReduceWhen::kLastMicroBatch, ReduceWhen::kEachMicroBatch}) {
    for (const std::int64_t bucket_bytes :
         {std::int64_t{0}, std::int64_t{128}, std::int64_t{1} << 20}) {
      const Executor::Options options{.clip = {.max_norm = 0.5},
                                      .step = {.reduce = reduce, .bucket_bytes = bucket_bytes}};
      const Result whole = alone({rows({1, 2, 3, 4, 5})}, options);
      run_ranks(3, [&](const MeshGroups& groups) {
        Rank rank(groups, options);
        const auto& own = parts[static_cast<std::size_t>(groups.world->rank())];
        const StepOutcome outcome = rank.executor->train_step(own, 0.01);
        EXPECT_NEAR(outcome.loss, whole.first.loss, 1e-6);
        EXPECT_NEAR(outcome.grad_norm, whole.first.grad_norm, 1e-5 * whole.first.grad_norm);
        EXPECT_EQ(outcome.weight, 5);
        rank.executor->train_step(own, 0.01);
        const std::vector<float> weights = rank.weights();
        for (std::size_t i = 0; i < weights.size(); ++i) {
          EXPECT_NEAR(weights[i], whole.weights[i], 1e-6) << i;
        }
      });
    }
  }
}

// Every row's sum is row · (1 + 2 + 3): rank 0 has rows 1 and 3, rank 1 row 2.
TEST(DdpTest, EachRankKnowsItsOwnLoss) {
  run_ranks(2, [&](const MeshGroups& groups) {
    Rank rank(groups, {});
    const bool first = groups.world->rank() == 0;
    const StepOutcome outcome = rank.executor->train_step({first ? rows({1, 3}) : rows({2})}, 0.0);
    EXPECT_NEAR(outcome.loss, 6 * 6 / 3.0, 1e-6);
    EXPECT_NEAR(outcome.local_loss, first ? 6 * 4 / 2.0 : 12.0, 1e-6);
  });
}

TEST(DdpTest, FrozenUnitsHaveNoGradientsAndDoNotMove) {
  for (const auto& trainable : std::vector<std::vector<bool>>{
           {false, true, true}, {true, false, true}, {false, false, true}, {true, true, false}}) {
    run_ranks(2, [&](const MeshGroups& groups) {
      Rank rank(groups, {}, trainable);
      const std::vector<float> before = rank.weights();
      rank.executor->train_step({rows({1 + groups.world->rank()})}, 0.1);
      const std::vector<float> after = rank.weights();
      for (std::size_t i = 0; i < before.size(); ++i) {
        EXPECT_EQ(before[i] == after[i], !trainable[i / 3]) << i;
      }
      for (std::size_t unit = 0; unit < trainable.size(); ++unit) {
        EXPECT_EQ(rank.executor->units()[unit].gradient_bytes() > 0, trainable[unit]);
      }
    });
  }
}

TEST(DdpTest, ANonFiniteValueOnOneRankStopsAllAndIsNamed) {
  run_ranks(3, [&](const MeshGroups& groups) {
    Rank rank(groups, {});
    if (groups.world->rank() == 1) rank.executor->units()[1].master("u1.w").fill_(INFINITY);
    const std::vector<float> before = rank.weights();
    const StepOutcome outcome = rank.executor->train_step({rows({1})}, 0.1);
    EXPECT_FALSE(outcome.applied);
    EXPECT_EQ(outcome.not_finite, "loss of rank 1");
    EXPECT_EQ(rank.weights(), before);
  });
}

TEST(DdpTest, ARequestOfOneRankReachesAll) {
  run_ranks(3, [&](const MeshGroups& groups) {
    Rank rank(groups, {});
    const int me = groups.world->rank();
    const StepOutcome outcome = rank.executor->train_step({rows({1})}, 0.1, [&] {
      return StepRequests{.stop_signal = me == 2 ? SIGTERM : 0, .save = me == 1};
    });
    EXPECT_EQ(outcome.requests.stop_signal, SIGTERM);
    EXPECT_TRUE(outcome.requests.save);
    const StepOutcome next = rank.executor->train_step({rows({1})}, 0.1);
    EXPECT_EQ(next.requests.stop_signal, 0);
    EXPECT_FALSE(next.requests.save);
  });
}

}  // namespace
}  // namespace tessera
