#include "parallel/step_cost.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace tessera {
namespace {

// A unit with one parameter, and no forward: plans need none.
class PlainUnit final : public Unit {
 public:
  PlainUnit(std::string name, std::int64_t elements)
      : name_(std::move(name)), elements_(elements) {}
  const std::string& name() const override { return name_; }
  std::vector<ParameterSpec> parameters() override {
    return {{.name = name_ + ".weight", .shape = {elements_}, .slot = &slot_}};
  }
  at::Tensor forward(const at::Tensor& hidden, const BatchContext&) override { return hidden; }

 private:
  std::string name_;
  std::int64_t elements_;
  at::Tensor slot_;
};

Chain three_units(std::int64_t elements = 32) {
  Chain chain;
  for (const char* name : {"a", "b", "c"}) {
    chain.units.push_back(std::make_unique<PlainUnit>(name, elements));
  }
  return chain;
}

std::vector<UnitCost> three_costs() {
  const UnitCost inner{.output_bytes = 100,
                       .lean_peak = 120,
                       .all = {.kept_bytes = 10, .forward_peak = 150, .backward_peak = 60},
                       .products = {.kept_bytes = 6, .forward_peak = 140, .backward_peak = 70}};
  UnitCost last = inner;
  last.output_bytes = 0;
  last.logits_bytes = 50;
  last.all = {.kept_bytes = 20, .forward_peak = 200, .backward_peak = 60};
  return {inner, inner, last};
}

StepPolicy plain_policy() {
  return {.backward_prefetch = BackwardPrefetch::kNone,
          .forward_prefetch = false,
          .bucket_bytes = 1 << 20};
}

StepCostInputs cost_inputs(const Mesh& mesh, const StepPolicy& policy, int micro_batches = 1) {
  StepCostInputs inputs{.plan = plan_step(three_units(), mesh, policy), .units = three_costs()};
  inputs.plan.inputs.micro_batches = micro_batches;
  inputs.host_shards = policy.host_shards;
  return inputs;
}

// Gather a, Forward a, Free a, Gather b, Forward b, Gather c, Forward c; Backward c, Free c,
// ReduceScatter c, Backward b, Free b, ReduceScatter b, Gather a, Backward a, Free a, ReduceScatter
// a. Each unit has 32 elements: 64 bytes on each of two ranks, 128 gathered.
TEST(StepCostTest, FullShardHoldsWhatTheScheduleSays) {
  const StepCost cost = cost_of_step(cost_inputs({2, 1}, plain_policy()));
  MemoryUse state;
  state[Holding::kParameters] = state[Holding::kGradients] = 3 * 64;
  state[Holding::kOptimizer] = 2 * 3 * 64;
  EXPECT_EQ(cost.at_start, state);
  EXPECT_EQ(cost.after_step, state);

  // In c's forward: a is freed; b and c are gathered; c's full gradient is there, for the loss
  // adds to it; a and b have kept 10 and handed on 100 each.
  MemoryUse peak = state;
  peak[Holding::kGathered] = 2 * 128;
  peak[Holding::kFullGradients] = 128;
  peak[Holding::kActivations] = 2 * 110;
  peak[Holding::kWorking] = 150;
  peak[Holding::kLogits] = 50;
  EXPECT_EQ(cost.peak, peak);
  EXPECT_EQ(cost.schedule[cost.peak_at].operation, Operation::kForward);
  EXPECT_EQ(cost.schedule[cost.peak_at].unit, 2);

  MemoryUse forward = peak;
  forward[Holding::kActivations] = 2 * 110 + 20;
  forward[Holding::kWorking] = forward[Holding::kLogits] = 0;
  EXPECT_EQ(cost.after_forward, forward);

  // b's sum is under way, so that its full gradient is there; that of c has been waited for.
  MemoryUse before_last = state;
  before_last[Holding::kGathered] = before_last[Holding::kFullGradients] = 128;
  before_last[Holding::kActivations] = 10;
  before_last[Holding::kWorking] = 100;
  EXPECT_EQ(cost.before_last_backward, before_last);
  MemoryUse after = state;
  after[Holding::kGathered] = 128;
  after[Holding::kFullGradients] = 2 * 128;
  EXPECT_EQ(cost.after_backward, after);
}

TEST(StepCostTest, FullShardSendsThreeTimesTheModelLessWhatStays) {
  const StepCost cost = cost_of_step(cost_inputs({2, 1}, plain_policy()));
  EXPECT_EQ(cost.traffic.all_gather.total(), 4 * 64);  // a twice: b and c stay for backward
  EXPECT_EQ(cost.traffic.reduce_scatter.total(), 3 * 64);
  // The batch's weight; loss, three requests, norms of three flat units, findings of two ranks.
  EXPECT_EQ(cost.traffic.all_reduce.total(), (1 + 4 + 3 + 2) * 8);
  EXPECT_EQ(cost.traffic.total().across, 0);
}

TEST(StepCostTest, ReplicasSendTwiceTheGradients) {
  StepCostInputs inputs = cost_inputs({1, 4}, plain_policy());
  inputs.ranks_per_node = 2;
  const StepCost cost = cost_of_step(inputs);
  const std::int64_t agreement = 2 * 8 * 3 / 4 + 2 * (4 + 3 + 4) * 8 * 3 / 4;
  EXPECT_EQ(cost.traffic.all_reduce.total(), 2 * 3 * 128 * 3 / 4 + agreement);
  // In a ring of a node's two ranks one sends to the other node.
  EXPECT_EQ(cost.traffic.all_reduce.across, 3 * 128 * 3 / 4 + agreement / 2);
  EXPECT_EQ(cost.at_start[Holding::kParameters], 3 * 128);
  EXPECT_EQ(cost.peak[Holding::kGathered], 0);
  EXPECT_EQ(cost.peak[Holding::kFullGradients], 0);
}

TEST(StepCostTest, CopiesInHalfPrecisionStayWithReplicas) {
  StepCostInputs inputs = cost_inputs({1, 1}, plain_policy());
  inputs.compute_bytes = 2;
  inputs.plan.inputs.computing_copy = true;
  const StepCost cost = cost_of_step(inputs);
  EXPECT_EQ(cost.at_start[Holding::kGathered], 3 * 64);
  EXPECT_EQ(cost.peak[Holding::kGathered], 3 * 64);
  EXPECT_EQ(cost.traffic.total().total(), 0);
}

TEST(StepCostTest, CheckpointedUnitsKeepTheirInput) {
  StepPolicy policy = plain_policy();
  policy.checkpointing = Checkpointing::kFull;
  const StepCost cost = cost_of_step(cost_inputs({1, 1}, policy));
  // a is the first unit and c the last: b alone is computed again.
  EXPECT_EQ(cost.after_forward[Holding::kActivations], 110 + 100 + 20);
  policy.checkpointing = Checkpointing::kSelective;
  EXPECT_EQ(cost_of_step(cost_inputs({1, 1}, policy)).after_forward[Holding::kActivations],
            110 + 106 + 20);
}

TEST(StepCostTest, OffloadedInputsAreCountedApart) {
  StepPolicy policy = plain_policy();
  policy.checkpointing = Checkpointing::kFull;
  policy.offload_horizon = 1;
  const StepCost cost = cost_of_step(cost_inputs({1, 1}, policy));
  EXPECT_EQ(cost.after_forward[Holding::kActivations], 10 + 100 + 20);
  EXPECT_EQ(cost.after_forward[Holding::kHost], 100);
  EXPECT_EQ(cost.host_peak, 100);
  EXPECT_EQ(cost.after_step[Holding::kHost], 0);
}

TEST(StepCostTest, OffloadedShardsLeaveTheDevice) {
  StepPolicy policy = plain_policy();
  policy.host_shards = true;
  StepCostInputs inputs = cost_inputs({2, 1}, policy);
  inputs.device_is_host = false;
  const StepCost cost = cost_of_step(inputs);
  EXPECT_EQ(cost.at_start.on_device(), 0);
  EXPECT_EQ(cost.at_start[Holding::kHost], 4 * 3 * 64);
  // A reduced shard of a gradient comes to the device first.
  std::int64_t reducing = 0;
  for (std::size_t i = 0; i < cost.schedule.size(); ++i) {
    if (cost.schedule[i].operation == Operation::kReduceScatter && cost.schedule[i].flat == 0) {
      reducing = cost.instructions[i].after;
    }
  }
  EXPECT_EQ(reducing, 128 + 64);
}

TEST(StepCostTest, GradientsThatTravelInSixteenBitsAreCopies) {
  StepCostInputs inputs = cost_inputs({2, 1}, plain_policy());
  inputs.reduce_bytes = 2;
  const StepCost cost = cost_of_step(inputs);
  const std::int64_t state = cost.at_start.on_device();
  for (std::size_t i = 0; i < cost.schedule.size(); ++i) {
    if (cost.schedule[i].operation != Operation::kReduceScatter || cost.schedule[i].flat != 0) {
      continue;
    }
    EXPECT_EQ(cost.instructions[i].after - state, 64 + 32);  // the full one, and this rank's part
    // b's are waited for before this begins.
    EXPECT_EQ(cost.instructions[i].peak - state, 64 + 32 + 128);
  }
  EXPECT_EQ(cost.traffic.reduce_scatter.total(), 3 * 32);
}

TEST(StepCostTest, AccumulationKeepsFullGradientsOrReducesEachTime) {
  StepPolicy policy = plain_policy();
  const StepCost last = cost_of_step(cost_inputs({2, 1}, policy, 3));
  policy.reduce = ReduceWhen::kEachMicroBatch;
  const StepCost each = cost_of_step(cost_inputs({2, 1}, policy, 3));
  EXPECT_EQ(last.peak[Holding::kFullGradients], 3 * 128);
  EXPECT_EQ(last.traffic.reduce_scatter.total(), 3 * 64);
  EXPECT_EQ(each.traffic.reduce_scatter.total(), 3 * 3 * 64);
  EXPECT_LT(each.peak.on_device(), last.peak.on_device());
}

TEST(StepCostTest, ReshardingAfterForwardSavesMemoryAndCostsGathers) {
  StepPolicy policy = plain_policy();
  policy.reshard_after_forward = false;
  const StepCost cost = cost_of_step(cost_inputs({2, 1}, policy));
  EXPECT_EQ(cost.after_forward[Holding::kGathered], 3 * 128);
  EXPECT_EQ(cost.traffic.all_gather.total(), 3 * 64);
}

TEST(StepCostTest, SmallParametersThatStayAreGatheredOnceAStep) {
  StepPolicy policy = plain_policy();
  policy.persistence_threshold = 1000;
  const StepCost cost = cost_of_step(cost_inputs({2, 1}, policy));
  EXPECT_EQ(cost.at_start[Holding::kGathered], 3 * 128);
  EXPECT_EQ(cost.peak[Holding::kGathered], 3 * 128);
  EXPECT_EQ(cost.traffic.all_gather.total(), 3 * 64);
}

TEST(StepCostTest, EvaluationKeepsNothing) {
  StepCostInputs inputs = cost_inputs({2, 1}, plain_policy());
  inputs.plan.inputs.kind = ScheduleKind::kEvaluate;
  const StepCost cost = cost_of_step(inputs);
  EXPECT_EQ(cost.at_start.on_device(), 3 * 64);
  EXPECT_EQ(cost.after_step.on_device(), 3 * 64);
  EXPECT_EQ(cost.peak.on_device(), 3 * 64 + 128 + 100 + 120);
}

// 8 ranks, nodes of 4: of a ring's 7 parts a node sends all to the next; in two steps each rank
// sends one part across, and the other rank's of each of two parts inside.
TEST(StepCostTest, GatherInTwoStepsSendsLessAcrossNodes) {
  const GroupLayout ring{.size = 8, .stride = 1, .ranks_per_node = 4};
  EXPECT_EQ(gather_bytes(ring, 800), (LinkBytes{.inside = 525, .across = 175}));
  GroupLayout steps = ring;
  steps.hierarchical = true;
  EXPECT_EQ(gather_bytes(steps, 800), (LinkBytes{.inside = 600, .across = 100}));
  // On one node there is nothing to save.
  steps.ranks_per_node = 8;
  EXPECT_EQ(gather_bytes(steps, 800), (LinkBytes{.inside = 700, .across = 0}));
  // Replicas of shard groups of 4 on nodes of 4 are all on different nodes.
  EXPECT_EQ(all_reduce_bytes({.size = 2, .stride = 4, .ranks_per_node = 4}, 800),
            (LinkBytes{.inside = 0, .across = 800}));
}

}  // namespace
}  // namespace tessera
