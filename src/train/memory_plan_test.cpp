#include "train/memory_plan.h"

#include <gtest/gtest.h>

#include <limits>

namespace tessera {
namespace {

MemoryInputs gpt2_inputs() { return {.shape = {}, .micro_rows = 4, .block_size = 256}; }

MemoryInputs sharded(int ranks) {
  MemoryInputs inputs = gpt2_inputs();
  inputs.layout = {.mesh = {.shard = ranks, .replica = 1}, .ranks_per_node = ranks};
  return inputs;
}

TEST(MemoryPlanTest, StateIsSixteenBytesAParameter) {
  const MemoryPlan plan = plan_memory(gpt2_inputs());
  EXPECT_NEAR(static_cast<double>(plan.peak[Holding::kParameters] + plan.peak[Holding::kGradients] +
                                  plan.peak[Holding::kOptimizer]),
              16.0 * 124439808, 1e4);
  // GPT-2 124M at 1,024 tokens: 12 · C floats a token and layer are 0.45 GB.
  EXPECT_NEAR(static_cast<double>(plan.peak[Holding::kActivations]) / 0.45e9, 1.0, 0.05);
}

// State by the number of ranks; embedding with its full gradient and two gathered blocks stay.
TEST(MemoryPlanTest, ShardsHoldTheirPartOfTheState) {
  const double whole = 16.0 * 124439808;
  for (const int ranks : {2, 4, 64}) {
    const MemoryPlan plan = plan_memory(sharded(ranks));
    EXPECT_NEAR(
        static_cast<double>(plan.peak[Holding::kParameters] + plan.peak[Holding::kGradients] +
                            plan.peak[Holding::kOptimizer]),
        whole / ranks, whole / ranks * 0.001);
    const double embedding = 4.0 * (50257 + 1024) * 768, block = 4.0 * (12 * 768 * 768 + 13 * 768);
    EXPECT_LE(static_cast<double>(plan.peak[Holding::kGathered]), embedding + 3.1 * block);
    EXPECT_LE(static_cast<double>(plan.peak[Holding::kFullGradients]), embedding + 2.1 * block);
  }
}

TEST(MemoryPlanTest, ManyMicroBatchesTakeWhatThreeDo) {
  MemoryInputs inputs = sharded(4);
  inputs.step.reduce = ReduceWhen::kEachMicroBatch;
  inputs.micro_batches = 3;
  const std::int64_t three = plan_memory(inputs).total();
  inputs.micro_batches = 50;
  EXPECT_EQ(plan_memory(inputs).total(), three);
  EXPECT_EQ(plan_step_cost(inputs).peak.on_device(), three);
}

TEST(MemoryPlanTest, RemediesNameWhatTheySave) {
  const std::string text = memory_remedies(gpt2_inputs());
  EXPECT_NE(text.find("1) train.batch_size=2"), std::string::npos) << text;
  EXPECT_NE(text.find("saves about"), std::string::npos);
  EXPECT_NE(text.find("activation_checkpointing=full"), std::string::npos) << text;
  EXPECT_LT(text.find("activation_checkpointing=selective"),
            text.find("activation_checkpointing=full"));
  EXPECT_LT(text.find("activation_checkpointing=full"), text.find("data.block_size"));
  EXPECT_EQ(text.find("full_shard"), std::string::npos)
      << text;                                                 // one rank has nobody to share with
  EXPECT_EQ(text.find("offload"), std::string::npos) << text;  // host and device are the same
  MemoryInputs one_row = gpt2_inputs();
  one_row.micro_rows = 1;
  EXPECT_EQ(memory_remedies(one_row).find("train.batch_size"), std::string::npos);
}

TEST(MemoryPlanTest, RemediesOfSeveralRanksShardMore) {
  MemoryInputs inputs = gpt2_inputs();
  inputs.layout = {.mesh = {.shard = 1, .replica = 4}, .ranks_per_node = 4};
  inputs.device_is_host = false;
  const std::string replicas = memory_remedies(inputs);
  EXPECT_NE(replicas.find("parallel.strategy=full_shard: each of the 4 ranks"), std::string::npos)
      << replicas;
  EXPECT_NE(replicas.find("parallel.cpu_offload=true"), std::string::npos) << replicas;
  inputs = sharded(4);
  inputs.micro_batches = 2;
  inputs.step.checkpointing = Checkpointing::kFull;
  const std::string shards = memory_remedies(inputs);
  EXPECT_EQ(shards.find("full_shard"), std::string::npos) << shards;
  EXPECT_EQ(shards.find("activation_checkpointing"), std::string::npos) << shards;
  EXPECT_NE(shards.find("parallel.reduce=each"), std::string::npos) << shards;
}

TEST(LargestFittingTest, FindsTheGreatestValueThatFits) {
  int asked = 0;
  const auto bytes_of = [&](std::int64_t value) {
    ++asked;
    return 100 + 7 * value;
  };
  for (const std::int64_t budget : {107, 113, 114, 800, 7099, 7100, 7101}) {
    EXPECT_EQ(largest_fitting(1, 1000, budget, bytes_of), (budget - 100) / 7) << budget;
  }
  EXPECT_EQ(largest_fitting(1, 1000, 1 << 30, bytes_of), 1000);
  EXPECT_EQ(largest_fitting(1, 1000, 106, bytes_of), std::nullopt);
  EXPECT_EQ(largest_fitting(3, 3, 121, bytes_of), 3);
  EXPECT_LT(asked, 200);
}

TEST(LargestFittingTest, RowsAndBlocksFitAsPredicted) {
  MemoryInputs inputs = gpt2_inputs();
  const std::int64_t budget = std::int64_t{6} << 30;
  const std::int64_t rows = largest_micro_rows(inputs, 4096, budget).value();
  inputs.micro_rows = rows;
  EXPECT_LE(plan_memory(inputs).total(), budget);
  inputs.micro_rows = rows + 1;
  EXPECT_GT(plan_memory(inputs).total(), budget);
  inputs.micro_rows = rows;
  const std::int64_t block_size = largest_block_size(inputs, budget).value();
  EXPECT_GE(block_size, 256);
  EXPECT_LT(block_size, 264);
  EXPECT_EQ(largest_block_size(inputs, 1 << 20), std::nullopt);
}

// parallelism.md's bound for full sharding: state / W, the root (tied embedding) whole with its
// gradient, 1 + limit gathered blocks, one block's full gradient, and what computing itself takes.
TEST(MemoryPlanTest, FullShardStaysWithinTheBoundAndFallsWithRanks) {
  Gpt2Shape ten_million, gpt2;
  ten_million.n_layer = 6;
  ten_million.n_head = 6;
  ten_million.n_embd = 288;
  ten_million.n_positions = 256;
  ten_million.vocab_size = ten_million.padded_vocab_size = 12000;
  gpt2.n_layer = gpt2.n_head = 12;
  gpt2.n_embd = 768;
  gpt2.n_positions = 1024;
  gpt2.vocab_size = gpt2.padded_vocab_size = 50257;
  for (const Gpt2Shape& shape : {ten_million, gpt2}) {
    std::int64_t before = std::numeric_limits<std::int64_t>::max();
    for (const int ranks : {2, 3, 4, 8}) {
      const MemoryInputs inputs{.shape = shape,
                                .micro_rows = 4,
                                .block_size = 256,
                                .layout = {.mesh = {.shard = ranks, .replica = 1}},
                                .step = {.reduce = ReduceWhen::kEachMicroBatch}};
      const StepCost cost = plan_step_cost(inputs);
      const std::int64_t root = (shape.padded_vocab_size + shape.n_positions) * shape.n_embd;
      const std::int64_t block = (parameter_count(shape) - root) / shape.n_layer + 1024 * ranks;
      const std::int64_t state = 16 * (parameter_count(shape) / ranks + 1024 * shape.n_layer);
      const MemoryUse& peak = cost.peak;
      const std::int64_t computing =
          peak[Holding::kActivations] + peak[Holding::kWorking] + peak[Holding::kLogits];
      const std::int64_t bound = state + 4 * (2 * root + (1 + 2) * block + block) + computing;
      EXPECT_LE(peak.on_device(), bound) << ranks << " ranks, width " << shape.n_embd;
      EXPECT_LT(peak.on_device(), before);
      before = peak.on_device();
    }
  }
}

}  // namespace
}  // namespace tessera
