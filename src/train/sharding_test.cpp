// Every way to spread a real model over ranks trains as one process does. Ranks are threads; real
// processes: tests/distributed/. Every combination: sharding_slow_test.cpp.
#include <gtest/gtest.h>

#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "train/sharded_training.h"
#include "train/sharding_ways.h"

namespace tessera::sharding {
namespace {

// Each pair of values of two settings is in one of these.
TEST(ShardingTest, EveryPairOfSettingsTrainsAsOneProcess) {
  const std::vector<NamedWay> ways = pairs_of(every_way());
  EXPECT_LT(ways.size(), 80U);
  for (const NamedWay& way : ways) expect_equal(train(way.way), one_process(), way.name);
}

TEST(ShardingTest, EveryMeshTrainsAsOneProcess) {
  for (const Mesh mesh : {Mesh{1, 2}, Mesh{2, 1}, Mesh{3, 1}, Mesh{4, 1}, Mesh{2, 2}, Mesh{1, 3}}) {
    for (const int micro_batches : {1, 4}) {
      for (const ReduceWhen reduce :
           {ReduceWhen::kLastMicroBatch, ReduceWhen::kEachMicroBatch, ReduceWhen::kTwoHop}) {
        const std::string what = to_string(mesh) + ", micro-batches " +
                                 std::to_string(micro_batches) + ", reduce " +
                                 std::to_string(static_cast<int>(reduce));
        expect_equal(train({.mesh = mesh,
                            .micro_batches = micro_batches,
                            .step = {.reduce = reduce, .bucket_bytes = 4096}}),
                     one_process(), what);
      }
    }
  }
}

TEST(ShardingTest, WhatMustNotChangeArithmeticChangesNoBit) {
  const Way plain{
      .mesh = {2, 1}, .micro_batches = 2, .step = {.reduce = ReduceWhen::kEachMicroBatch}};
  const Trained reference = train(plain);
  const auto with = [&](const std::string& what, const std::function<void(StepPolicy&)>& change) {
    Way way = plain;
    change(way.step);
    expect_same_bits(train(way), reference, what);
  };
  with("post", [](StepPolicy& p) { p.backward_prefetch = BackwardPrefetch::kPost; });
  with("no backward prefetch",
       [](StepPolicy& p) { p.backward_prefetch = BackwardPrefetch::kNone; });
  with("no forward prefetch", [](StepPolicy& p) { p.forward_prefetch = false; });
  with("limit 1", [](StepPolicy& p) { p.gather_limit = 1; });
  with("no limit", [](StepPolicy& p) { p.gather_limit = 0; });
  with("live limit", [](StepPolicy& p) { p.live_limit = 5000; });
  with("grad op", [](StepPolicy& p) { p.reshard_after_forward = false; });
  with("host", [](StepPolicy& p) { p.host_shards = true; });
  with("full checkpointing", [](StepPolicy& p) { p.checkpointing = Checkpointing::kFull; });
  with("selective", [](StepPolicy& p) { p.checkpointing = Checkpointing::kSelective; });
  with("every second", [](StepPolicy& p) {
    p.checkpointing = Checkpointing::kFull;
    p.checkpoint_every = 2;
  });
  with("offload", [](StepPolicy& p) {
    p.checkpointing = Checkpointing::kFull;
    p.offload_horizon = 2;
  });
}

// They lie in a group of their own, so that the norm's sum has another order.
TEST(ShardingTest, SmallParametersMayStayGathered) {
  for (const std::int64_t threshold : {17, 100, 1 << 20}) {
    expect_equal(train({.mesh = {2, 1}, .step = {.persistence_threshold = threshold}}),
                 one_process(), std::to_string(threshold));
  }
}

// Gathered in bf16, added in bf16: rounding differs, nothing else.
TEST(ShardingTest, LowerPrecisionOfParametersAndSums) {
  const Way one{.mesh = {}, .compute = at::kBFloat16};
  const Trained alone = train(one);
  for (const Mesh mesh : {Mesh{1, 2}, Mesh{2, 1}, Mesh{2, 2}}) {
    Way way = one;
    way.mesh = mesh;
    expect_close(train(way), alone, 5e-3, "bf16, " + to_string(mesh));
    way.compute = at::kFloat;
    way.reduce = at::kBFloat16;
    expect_close(train(way), one_process(), 5e-3, "sums in bf16, " + to_string(mesh));
  }
}

// f16: the scale is so great at first that gradients overflow: all ranks halve it in the same
// steps, whoever overflowed, and none of these steps changes a weight.
TEST(ShardingTest, AnOverflowOfF16HalvesTheScaleEverywhere) {
  const LossScale scale{.scale = 16777216.0 * 4, .good_steps = 0, .enabled = true};
  for (const Mesh mesh : {Mesh{2, 1}, Mesh{1, 2}, Mesh{2, 2}}) {
    Way way{.mesh = mesh, .compute = at::kHalf, .loss_scale = scale};
    std::mutex mutex;
    std::vector<double> scales;
    run_thread_ranks(mesh, [&](const MeshGroups& groups) {
      at::set_num_threads(1);
      Rank rank(groups, way);
      for (int step = 1; step <= 20; ++step) rank.step(step, way, groups.world->rank());
      EXPECT_GT(rank.executor().applied_steps(), 2);
      EXPECT_LT(rank.executor().applied_steps(), 20);
      const std::scoped_lock lock(mutex);
      scales.push_back(rank.executor().loss_scale().scale);
    });
    for (const double found : scales) {
      EXPECT_EQ(found, scales.front());
      EXPECT_LT(found, scale.scale);
    }
  }
}

TEST(ShardingTest, ANonFiniteShardOfOneRankStopsTheStepEverywhere) {
  for (const Mesh mesh : {Mesh{3, 1}, Mesh{2, 2}}) {
    const Way way{.mesh = mesh};
    run_thread_ranks(mesh, [&](const MeshGroups& groups) {
      at::set_num_threads(1);
      Rank rank(groups, way);
      if (groups.world->rank() == 1) {
        rank.executor().units()[2].visit([](const LocalPart& part) {
          if (part.end > part.begin) part.parameters.fill_(INFINITY);
        });
      }
      const StepOutcome outcome = rank.step(1, way, groups.world->rank());
      EXPECT_FALSE(outcome.applied);
      EXPECT_FALSE(outcome.not_finite.empty());
      EXPECT_EQ(rank.executor().applied_steps(), 0);
    });
  }
}

// Every rank takes part in each forward, with rows or without.
TEST(ShardingTest, EvaluatesWithFewerRowsThanRanks) {
  const BatchContext all = [] {
    BatchContext context = rows_of(3, 0, 2);
    context.mode = Mode::kEvaluate;
    return context;
  }();
  const auto sums_of = [&](const Mesh& mesh) {
    EvaluationSums total;
    std::mutex mutex;
    run_thread_ranks(mesh, [&](const MeshGroups& groups) {
      at::set_num_threads(1);
      Rank rank(groups, {.mesh = mesh});
      const std::int64_t me = groups.world->rank(), ranks = mesh.world_size();
      BatchContext own = rows_of(3, 2 * me / ranks, 2 * (me + 1) / ranks);
      own.mode = Mode::kEvaluate;
      const EvaluationSums part = rank.executor().evaluate(own);
      const std::scoped_lock lock(mutex);
      total.loss += part.loss;
      total.correct += part.correct;
      total.weight += part.weight;
    });
    return total;
  };
  const EvaluationSums one = sums_of({});
  EXPECT_EQ(one.weight, 15);
  for (const Mesh mesh : {Mesh{3, 1}, Mesh{4, 1}, Mesh{2, 2}}) {
    const EvaluationSums several = sums_of(mesh);
    EXPECT_NEAR(several.loss, one.loss, 1e-5 * one.loss);
    EXPECT_EQ(several.correct, one.correct);
    EXPECT_EQ(several.weight, one.weight);
  }
}

TEST(ShardingTest, LogitsComeFromGatheredParameters) {
  BatchContext context = rows_of(3, 0, 2);
  context.mode = Mode::kGenerate;
  const auto logits_of = [&](const Mesh& mesh) {
    at::Tensor found;
    run_thread_ranks(mesh, [&](const MeshGroups& groups) {
      const at::NoGradGuard no_grad;
      at::set_num_threads(1);
      Rank rank(groups, {.mesh = mesh});
      const at::Tensor hidden = rank.executor().hidden(context);
      const at::Tensor logits = rank.executor().logits(hidden.reshape({-1, hidden.size(2)}));
      if (groups.world->rank() == 0) found = logits;
    });
    return found;
  };
  EXPECT_TRUE(logits_of({2, 1}).equal(logits_of({})));
}

TEST(ShardingTest, WrapPoliciesTrainAsOneProcess) {
  for (const Mesh mesh : {Mesh{2, 1}, Mesh{2, 2}}) {
    expect_equal(train({.mesh = mesh, .step = {.wrap = Wrap::kNone}}), one_process(), "none");
    for (const std::int64_t least : {0, 2000, 5000, 1 << 30}) {
      expect_equal(train({.mesh = mesh, .step = {.wrap = Wrap::kSize, .min_num_params = least}}),
                   one_process(), "size " + std::to_string(least));
    }
  }
}

}  // namespace
}  // namespace tessera::sharding
