// The sizes that are found beside what their steps then take.
#include "train/auto_size.h"

#include <ATen/Parallel.h>
#include <ATen/ops/randint.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "base/error.h"
#include "model/causal_lm.h"
#include "ops/caching_allocator.h"
#include "optim/registry.h"
#include "parallel/fake_communicator.h"
#include "train/step_settings.h"

namespace tessera {
namespace {

constexpr std::int64_t kEnough = std::int64_t{1} << 40;

class AutoSizeTest : public ::testing::Test {
 protected:
  AutoSizeTest() {
    install_caching_allocator();
    plan_.request.config.train.auto_batch = true;
    set_shape({.n_layer = 2,
               .n_head = 4,
               .n_embd = 128,
               .n_positions = 255,
               .vocab_size = 1000,
               .padded_vocab_size = 1000});
    set_text(100 * 64 * 255);
    at::set_num_threads(1);  // so small a model gains nothing from more
  }
  ~AutoSizeTest() override { at::set_num_threads(threads_); }

  void set_shape(const Gpt2Shape& shape) {
    plan_.shape = shape;
    plan_.chain = make_gpt2(shape);
  }
  void set_text(std::int64_t tokens) {
    plan_.data.train = std::make_shared<TokenDataset>(
        std::vector<std::uint32_t>(static_cast<std::size_t>(tokens), 1));
  }
  void shard_over(int ranks) {
    plan_.request.place.world_size = ranks;
    plan_.request.config.parallel.strategy = Strategy::kFullShard;
    plan_.layout.mesh = {.shard = ranks, .replica = 1};
  }
  TrainConfig& train() { return plan_.request.config.train; }

  // Finds for a process that is alone, whatever the plan says.
  std::int64_t find(std::int64_t budget, std::int64_t block_size = 255,
                    const RecordedSizes& recorded = {}) {
    const TrainRequest alone;
    Log log(LogLevel::kNormal,
            [this](std::string_view line) { said_ += std::string(line) + "\n"; });
    Ranks ranks(alone, log);
    return find_sizes(plan_, ranks, recorded, budget, block_size, log);
  }

  std::int64_t predicted(std::int64_t rows, std::int64_t block_size) const {
    MemoryInputs inputs = plan_.memory(block_size);
    inputs.micro_rows = rows;
    inputs.micro_batches = 1;
    return plan_memory(inputs).total();
  }

  // The peak of the second step, by the allocator.
  std::int64_t measured(std::int64_t rows, std::int64_t block_size) const {
    CachingAllocator& allocator = install_caching_allocator();
    allocator.release_cached();
    const Mesh mesh = plan_.layout.mesh;
    const auto world = make_fake_communicator(0, mesh.world_size());
    const auto shard = make_fake_communicator(0, mesh.shard);
    const auto replica = make_fake_communicator(0, mesh.replica);
    Chain chain = make_gpt2(plan_.shape);
    CausalLmObjective objective;
    const auto optimizer = make_optimizer(plan_.config().optim);
    const std::int64_t before = allocator.statistics().in_use;
    Executor executor(
        chain, objective, optimizer.get(),
        {.mesh = mesh, .world = world.get(), .shard = shard.get(), .replica = replica.get()},
        {.step = step_policy(plan_.config().parallel, mesh)});
    BatchContext batch;
    batch.ids = at::randint(plan_.shape.vocab_size, {rows, block_size}, at::kLong);
    batch.labels = batch.ids;
    executor.train_step({batch}, 1e-3);
    allocator.reset_peak();
    executor.train_step({batch}, 1e-3);
    return allocator.statistics().peak_in_use - before;
  }

  static std::int64_t next_size(std::int64_t size) {
    do ++size;
    while (round_size(size) != size);
    return size;
  }
  static std::int64_t halfway(std::int64_t a, std::int64_t b) { return a + (b - a) / 2; }

  // Of what `work` allocates beside what there was.
  static std::int64_t peak_of(const std::function<void()>& work) {
    CachingAllocator& allocator = install_caching_allocator();
    const std::int64_t before = allocator.statistics().in_use;
    allocator.reset_peak();
    work();
    return allocator.statistics().peak_in_use - before;
  }

  static Error refusal(const std::function<void()>& work) {
    try {
      work();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kResource) << error.what();
      return error;
    }
    ADD_FAILURE() << "not refused";
    return Error(ErrorKind::kInternal, "not refused");
  }

  void expect_rows_fit() {
    for (const std::int64_t rows : {3, 12}) {
      const std::int64_t next = next_size(rows);
      const std::int64_t budget = halfway(predicted(rows, 255), predicted(next, 255));
      find(budget);
      EXPECT_EQ(plan_.batches.micro_rows, rows) << said_;
      EXPECT_LE(measured(rows, 255), budget) << rows;
      EXPECT_GT(measured(next, 255), budget) << next;
    }
  }

  const int threads_ = at::get_num_threads();
  RunPlan plan_;
  std::string said_;
};

TEST_F(AutoSizeTest, RowsThatAreFoundFitAndTheNextSizeDoesNot) {
  expect_rows_fit();
  EXPECT_NE(said_.find("train.batch_size = 12: what fits, for tensors"), std::string::npos)
      << said_;
  EXPECT_NE(said_.find("global batch 12 sequences, which the run keeps"), std::string::npos)
      << said_;
}

TEST_F(AutoSizeTest, RowsOfAShardedModelLikewise) {
  shard_over(4);
  expect_rows_fit();
}

TEST_F(AutoSizeTest, BlocksLikewise) {
  train().auto_batch = false;
  train().auto_block_size = true;
  train().batch_size = 8;
  const std::int64_t block = 160, next = next_size(block);
  plan_.batches = {.global_rows = 8, .micro_rows = 8, .micro_batches = 1};
  const std::int64_t budget = halfway(predicted(8, block), predicted(8, next));
  EXPECT_EQ(find(budget), block) << said_;
  EXPECT_LE(measured(8, block), budget);
  EXPECT_GT(measured(8, next), budget);
  EXPECT_EQ(find(kEnough), 255);  // the whole context, as it is
  EXPECT_EQ(find(budget, 255, {.global_rows = 8, .block_size = 77}), 77);
}

TEST_F(AutoSizeTest, WithBothTheLongestBlockComesFirst) {
  train().auto_block_size = true;
  const std::int64_t budget = halfway(predicted(3, 255), predicted(4, 255));
  EXPECT_EQ(find(budget), 255);
  EXPECT_EQ(plan_.batches.micro_rows, 3);
}

TEST_F(AutoSizeTest, WhatDoesNotFitIsRefusedBeforeAnythingIsAllocated) {
  set_shape({.n_layer = 64,
             .n_head = 48,
             .n_embd = 6144,
             .n_positions = 2048,
             .vocab_size = 50257,
             .padded_vocab_size = 50304});
  const auto refused = [&](const char* key) {
    const std::int64_t peak = peak_of([&] {
      const Error error = refusal([&] { find(std::int64_t{16} << 30, 2048); });
      EXPECT_EQ(error.where(), key);
      EXPECT_NE(error.reason().find("not even"), std::string::npos) << error.what();
      EXPECT_NE(error.remedy().find("a smaller model"), std::string::npos) << error.what();
    });
    EXPECT_LT(peak, 1 << 20);
  };
  refused("train.auto_batch");
  train().auto_batch = false;
  train().auto_block_size = true;
  refused("train.auto_block_size");
}

// Tensors of a little more than 32 KiB, which the allocator rounds up and the prediction does not.
TEST_F(AutoSizeTest, AProbeCorrectsThePredictionAndADryRunMakesNone) {
  set_shape({.n_layer = 8,
             .n_head = 2,
             .n_embd = 32,
             .n_positions = 272,
             .vocab_size = 257,
             .padded_vocab_size = 257});
  const std::int64_t budget = predicted(1, 272);
  ASSERT_GT(measured(1, 272), budget);
  const Error error = refusal([&] { find(budget, 272); });
  EXPECT_EQ(error.where(), "train.auto_batch");

  plan_.request.dry_run = true;
  EXPECT_LT(peak_of([&] { find(budget, 272); }), 1 << 16);
  EXPECT_EQ(plan_.batches.micro_rows, 1);
  EXPECT_NE(said_.find("predicted: a real start runs a step of one row"), std::string::npos)
      << said_;
}

TEST_F(AutoSizeTest, AStepTakesAtMostAHundredthOfTheText) {
  plan_.request.dry_run = true;
  set_text(100 * 40 * 255 + 1000);
  find(kEnough);
  EXPECT_EQ(plan_.batches.micro_rows, 40);
  EXPECT_NE(said_.find("by the data and not by memory"), std::string::npos) << said_;
  train().gradient_accumulation = 2;
  find(kEnough);
  EXPECT_EQ(plan_.batches.micro_rows, 20);
  train().gradient_accumulation = 0;
  plan_.request.plan_world_size = 4;
  plan_.layout.mesh = {.shard = 1, .replica = 4};
  find(kEnough);
  EXPECT_EQ(plan_.batches.micro_rows, 10);
  EXPECT_EQ(plan_.batches.global_rows, 40);
  set_text(27 * 255 + 1);
  find(kEnough);
  EXPECT_EQ(plan_.batches.micro_rows, 1);
}

TEST_F(AutoSizeTest, AGlobalBatchStays) {
  plan_.request.dry_run = true;
  train().global_batch_size = 27;
  find(kEnough);
  EXPECT_EQ(plan_.batches.micro_rows, 27);
  EXPECT_EQ(said_.find("which the run keeps"), std::string::npos) << said_;
  find(halfway(predicted(12, 255), predicted(14, 255)));
  EXPECT_EQ(plan_.batches.micro_rows, 12);
  EXPECT_EQ(plan_.batches.global_rows, 27);
  EXPECT_EQ(plan_.batches.micro_batches, 3);
  // That of a resumed run, whatever its micro-batches were.
  train().global_batch_size = 0;
  train().gradient_accumulation = 2;
  find(kEnough, 255, {.global_rows = 27, .block_size = 255});
  EXPECT_EQ(plan_.batches.global_rows, 27);
  EXPECT_EQ(plan_.batches.micro_rows, 27);
}

TEST(RoundSizeTest, StepsAreAtMostAFifth) {
  EXPECT_EQ(round_size(4788), 4096);
  EXPECT_EQ(round_size(4699), round_size(4814));
  for (std::int64_t size = 1; size < 3000; ++size) {
    const std::int64_t rounded = round_size(size);
    EXPECT_LE(rounded, size);
    EXPECT_GT(5 * rounded, 4 * size - 1) << size;
    EXPECT_EQ(round_size(rounded), rounded);
  }
}

TEST(RanksOfHostTest, ADryRunCountsThoseItPlansFor) {
  TrainRequest request{.plan_world_size = 4};
  EXPECT_EQ(request.ranks_of_host(), 1);
  request.dry_run = true;
  EXPECT_EQ(request.ranks_of_host(), 4);
  request.place = {.world_size = 6, .local_world_size = 3};
  EXPECT_EQ(request.ranks_of_host(), 3);
}

}  // namespace
}  // namespace tessera
