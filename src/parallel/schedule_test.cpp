#include "parallel/schedule.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

// embedding, h.0 and head, each a flat unit; the head reads the embedding's matrix.
ScheduleInputs three_units(bool sharded = false) {
  ScheduleInputs inputs{.unit_names = {"embedding", "h.0", "head"}, .flat_units = {}};
  for (int unit = 0; unit < 3; ++unit) {
    inputs.flat_units.push_back(
        {.first = unit, .last = unit, .users = {}, .sharded = sharded, .elements = 100});
  }
  inputs.flat_units[0].users = {2};
  return inputs;
}

std::string text_of(const ScheduleInputs& inputs) { return print(compile(inputs), inputs); }

TEST(ScheduleTest, AStepOfOneProcessHasNoCommunication) {
  ScheduleInputs inputs = three_units();
  inputs.micro_batches = 2;
  EXPECT_EQ(text_of(inputs),
            "Forward embedding micro_batch 0\n"
            "Forward h.0 micro_batch 0\n"
            "Forward head micro_batch 0\n"
            "Backward head micro_batch 0\n"
            "Backward h.0 micro_batch 0\n"
            "Backward embedding micro_batch 0\n"
            "Forward embedding micro_batch 1\n"
            "Forward h.0 micro_batch 1\n"
            "Forward head micro_batch 1\n"
            "Backward head micro_batch 1\n"
            "Backward h.0 micro_batch 1\n"
            "Backward embedding micro_batch 1\n"
            "Agree\n"
            "ClipAndStep embedding\n"
            "ClipAndStep h.0\n"
            "ClipAndStep head\n");
}

TEST(ScheduleTest, PrecisionAddsGatherAndScale) {
  ScheduleInputs inputs = three_units();
  inputs.computing_copy = true;
  inputs.loss_scaling = true;
  const std::string text = text_of(inputs);
  EXPECT_EQ(text.find("Gather embedding\nGather h.0\nGather head\nForward"), 0u);
  EXPECT_TRUE(text.ends_with("ClipAndStep head\nUpdateScale\n"));
}

TEST(ScheduleTest, ReplicasReduceEachBucketWhenItsLastBackwardHasEnded) {
  ScheduleInputs inputs = three_units();
  inputs.micro_batches = 2;
  inputs.mesh = {.shard = 1, .replica = 2};
  inputs.buckets = {{1, 2}, {0}};
  const std::string text = text_of(inputs);
  EXPECT_EQ(text,
            "Forward embedding micro_batch 0\n"
            "Forward h.0 micro_batch 0\n"
            "Forward head micro_batch 0\n"
            "Backward head micro_batch 0\n"
            "Backward h.0 micro_batch 0\n"
            "Backward embedding micro_batch 0\n"
            "Forward embedding micro_batch 1\n"
            "Forward h.0 micro_batch 1\n"
            "Forward head micro_batch 1\n"
            "Backward head micro_batch 1\n"
            "Backward h.0 micro_batch 1\n"
            "AllReduce bucket 0 micro_batch 1\n"
            "Backward embedding micro_batch 1\n"
            "AllReduce bucket 1 micro_batch 1\n"
            "Agree\n"
            "ClipAndStep embedding\n"
            "ClipAndStep h.0\n"
            "ClipAndStep head\n");
}

TEST(ScheduleTest, ReducingEachMicroBatchWaitsBeforeGradientsGrowAgain) {
  ScheduleInputs inputs = three_units();
  inputs.micro_batches = 2;
  inputs.mesh = {.shard = 1, .replica = 2};
  inputs.buckets = {{0, 1, 2}};
  inputs.reduce = ReduceWhen::kEachMicroBatch;
  const std::string text = text_of(inputs);
  EXPECT_NE(text.find("Backward embedding micro_batch 0\n"
                      "AllReduce bucket 0 micro_batch 0\n"
                      "Forward embedding micro_batch 1\n"
                      "Forward h.0 micro_batch 1\n"
                      "Accumulate bucket 0 micro_batch 1\n"
                      "Forward head micro_batch 1\n"),
            std::string::npos)
      << text;
}

TEST(ScheduleTest, NothingRunsBackwardBelowTheLowestTrainableUnit) {
  ScheduleInputs inputs = three_units();
  inputs.lowest_trainable = 1;
  const std::string text = text_of(inputs);
  EXPECT_NE(text.find("Backward h.0"), std::string::npos);
  EXPECT_EQ(text.find("Backward embedding"), std::string::npos);
}

TEST(ScheduleTest, BucketsJoinSmallNeighboursFromTheEnd) {
  using Buckets = std::vector<Bucket>;
  EXPECT_EQ(plan_buckets({50, 10, 10, 10, 6}, 25), (Buckets{{3, 4}, {1, 2}, {0}}));
  EXPECT_EQ(plan_buckets({50, 0, 10, 0, 5}, 25), (Buckets{{2, 4}, {0}}));  // frozen units
  EXPECT_EQ(plan_buckets({1, 1, 1}, 0), (Buckets{{2}, {1}, {0}}));
  EXPECT_EQ(plan_buckets({0, 0}, 25), Buckets{});
}

TEST(ScheduleTest, EvaluationAndGenerationOnlyGoForward) {
  for (const ScheduleKind kind : {ScheduleKind::kEvaluate, ScheduleKind::kGenerate}) {
    ScheduleInputs inputs = three_units();
    inputs.kind = kind;
    EXPECT_EQ(compile(inputs).size(), 3u);
  }
}

// What is gathered when: read off the text, at each instruction.
TEST(ScheduleTest, FullShardGathersFreesAndGathersAgain) {
  ScheduleInputs inputs = three_units(true);
  inputs.unit_names = {"embedding", "h.0", "h.1", "h.2", "head"};
  inputs.flat_units.clear();
  for (int unit = 0; unit < 5; ++unit) {
    inputs.flat_units.push_back(
        {.first = unit, .last = unit, .users = {}, .sharded = true, .elements = 100});
  }
  inputs.flat_units[0].users = {4};
  inputs.mesh = {.shard = 2, .replica = 1};
  EXPECT_EQ(text_of(inputs),
            "Gather embedding micro_batch 0\n"
            "Gather h.0 micro_batch 0\n"
            "Forward embedding micro_batch 0\n"
            "Gather h.1 micro_batch 0\n"
            "Forward h.0 micro_batch 0\n"
            "Free h.0 micro_batch 0\n"
            "Gather h.2 micro_batch 0\n"
            "Forward h.1 micro_batch 0\n"
            "Free h.1 micro_batch 0\n"
            "Gather head micro_batch 0\n"
            "Forward h.2 micro_batch 0\n"
            "Forward head micro_batch 0\n"
            "Gather h.1 micro_batch 0\n"
            "Backward head micro_batch 0\n"
            "Free head micro_batch 0\n"
            "ReduceScatter head micro_batch 0\n"
            "Backward h.2 micro_batch 0\n"
            "Free h.2 micro_batch 0\n"
            "ReduceScatter h.2 micro_batch 0\n"
            "Gather h.0 micro_batch 0\n"
            "Backward h.1 micro_batch 0\n"
            "Free h.1 micro_batch 0\n"
            "ReduceScatter h.1 micro_batch 0\n"
            "Backward h.0 micro_batch 0\n"
            "Free h.0 micro_batch 0\n"
            "ReduceScatter h.0 micro_batch 0\n"
            "Backward embedding micro_batch 0\n"
            "Free embedding micro_batch 0\n"
            "ReduceScatter embedding micro_batch 0\n"
            "Agree\n"
            "ClipAndStep embedding\nClipAndStep h.0\nClipAndStep h.1\nClipAndStep h.2\n"
            "ClipAndStep head\n");
}

}  // namespace
}  // namespace tessera
