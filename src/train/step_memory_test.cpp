// The prediction beside what an executor's tensors take, one rank of a world that a fake transport
// stands for.
#include <ATen/ops/randint.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "model/causal_lm.h"
#include "ops/caching_allocator.h"
#include "ops/host_pool.h"
#include "optim/adamw.h"
#include "parallel/executor.h"
#include "parallel/fake_communicator.h"
#include "parallel/traffic.h"
#include "train/memory_plan.h"

namespace tessera {
namespace {

MemoryInputs base_inputs() {
  // Blocks of 255 tokens, for the allocator rounds sizes up to 64 KiB.
  return {.shape = {.n_layer = 3,
                    .n_head = 4,
                    .n_embd = 256,
                    .n_positions = 255,
                    .vocab_size = 1000,
                    .padded_vocab_size = 1000},
          .micro_rows = 2,
          .block_size = 255,
          .layout = {.mesh = {}, .ranks_per_node = 2}};
}

// Bytes by point of a step, and the greatest.
struct Found {
  std::map<std::string, std::int64_t> points;
  std::int64_t peak = 0, host_peak = 0, host_at_start = 0;
  TrafficCounts traffic;
};

class RankOfMany {
 public:
  explicit RankOfMany(const MemoryInputs& inputs)
      : inputs_(inputs),
        allocator_(fresh_allocator()),
        before_(allocator_.statistics().in_use),
        host_before_(host_pool_statistics().in_use),
        chain_(make_gpt2(inputs.shape)),
        communicators_(inputs.layout, 0,
                       [&](const RankGroup& group) {
                         return make_counting_communicator(
                             make_fake_communicator(group.rank, group.size()),
                             link_to_next(group, inputs.layout.ranks_per_node), traffic_);
                       }),
        executor_(chain_, objective_, &optimizer_, communicators_.groups(),
                  {.compute_dtype = type_of(inputs.compute_bytes),
                   .reduce_dtype = type_of(inputs.reduce_bytes),
                   .step = inputs.step}) {}

  Found run() {
    step();  // what operations make once, and parameters that stay gathered
    found_ = {};
    traffic_.reset();
    const auto in_use = [this] { return allocator_.statistics().in_use - before_ - batch_bytes_; };
    executor_.at_point = [&, in_use](const char* point) {
      found_.points[point] = in_use();
      if (std::string(point) == "start") {
        allocator_.reset_peak();
        found_.host_at_start = host_pool_statistics().in_use - host_before_;
      }
    };
    step();
    found_.peak = allocator_.statistics().peak_in_use - before_ - batch_bytes_;
    found_.traffic = traffic_.counts();
    return found_;
  }

 private:
  // Without blocks of others, which may be larger than what is asked for.
  static CachingAllocator& fresh_allocator() {
    CachingAllocator& allocator = install_caching_allocator();
    allocator.release_cached();
    return allocator;
  }
  static at::ScalarType type_of(std::int64_t bytes) {
    return bytes == 4 ? at::kFloat : at::kBFloat16;
  }

  void step() {
    const std::int64_t start = allocator_.statistics().in_use;
    std::vector<BatchContext> micro_batches;
    for (int part = 0; part < inputs_.micro_batches; ++part) {
      BatchContext context;
      context.ids = at::randint(inputs_.shape.vocab_size, {inputs_.micro_rows, inputs_.block_size},
                                at::kLong);
      context.labels = context.ids;
      micro_batches.push_back(context);
    }
    batch_bytes_ = allocator_.statistics().in_use - start;
    executor_.train_step(micro_batches, 1e-3);
  }

  MemoryInputs inputs_;
  CachingAllocator& allocator_;
  std::int64_t before_, host_before_, batch_bytes_ = 0;
  Traffic traffic_;
  Chain chain_;
  CausalLmObjective objective_;
  AdamW optimizer_{{}};
  MeshCommunicators communicators_;
  Executor executor_;
  Found found_;
};

// Names a difference of more than 1 % and a MiB, which is what the allocator rounds up.
void expect_near(const char* what, std::int64_t predicted, std::int64_t found) {
  EXPECT_NEAR(static_cast<double>(predicted) / (1 << 20), static_cast<double>(found) / (1 << 20),
              0.01 * static_cast<double>(found) / (1 << 20) + 1)
      << "MiB " << what;
}

void expect_predicted(const std::string& name, const MemoryInputs& inputs) {
  SCOPED_TRACE(name);
  const StepCost cost = plan_step_cost(inputs);
  const Found found = RankOfMany(inputs).run();
  expect_near("at the start", cost.at_start.on_device(), found.points.at("start"));
  expect_near("after forward", cost.after_forward.on_device(), found.points.at("forward"));
  expect_near("after backward", cost.after_backward.on_device(), found.points.at("backward"));
  expect_near("after the step", cost.after_step.on_device(), found.points.at("step"));
  expect_near("at the worst", cost.peak.on_device(), found.peak);
  EXPECT_EQ(cost.at_start[Holding::kHost], found.host_at_start);

  const StepTraffic& sent = cost.traffic;
  EXPECT_EQ(sent.all_gather.total(), found.traffic.of(Verb::kAllGather));
  EXPECT_EQ(sent.reduce_scatter.total(), found.traffic.of(Verb::kReduceScatter));
  EXPECT_EQ(sent.all_reduce.total(), found.traffic.of(Verb::kAllReduce));
}

MemoryInputs on_mesh(int shard, int replica) {
  MemoryInputs inputs = base_inputs();
  inputs.layout.mesh = {.shard = shard, .replica = replica};
  if (shard > 1) inputs.step.reduce = ReduceWhen::kEachMicroBatch;
  return inputs;
}

TEST(StepMemoryTest, OneProcess) {
  expect_predicted("f32", on_mesh(1, 1));
  MemoryInputs half = on_mesh(1, 1);
  half.compute_bytes = 2;
  expect_predicted("bf16", half);
}

TEST(StepMemoryTest, ActivationCheckpointing) {
  for (const Checkpointing kind : {Checkpointing::kSelective, Checkpointing::kFull}) {
    MemoryInputs inputs = on_mesh(1, 1);
    inputs.step.checkpointing = kind;
    expect_predicted(kind == Checkpointing::kFull ? "full" : "selective", inputs);
  }
  MemoryInputs every_second = on_mesh(1, 1);
  every_second.step.checkpointing = Checkpointing::kFull;
  every_second.step.checkpoint_every = 2;
  expect_predicted("every second block", every_second);
}

TEST(StepMemoryTest, Replicas) { expect_predicted("ddp", on_mesh(1, 4)); }

TEST(StepMemoryTest, Shards) {
  MemoryInputs inputs = on_mesh(4, 1);
  expect_predicted("full shard", inputs);
  inputs.micro_batches = 2;
  expect_predicted("two micro-batches", inputs);
  inputs.step.reduce = ReduceWhen::kLastMicroBatch;
  expect_predicted("reduced after the last", inputs);
  inputs = on_mesh(4, 1);
  inputs.step.reshard_after_forward = false;
  expect_predicted("grad op", inputs);
  inputs = on_mesh(4, 1);
  inputs.step.checkpointing = Checkpointing::kFull;
  expect_predicted("checkpointed", inputs);
  inputs.step.wrap = Wrap::kNone;
  expect_predicted("one flat unit", inputs);
}

TEST(StepMemoryTest, ShardsInHalfPrecision) {
  MemoryInputs inputs = on_mesh(4, 1);
  inputs.compute_bytes = 2;
  expect_predicted("bf16", inputs);
  inputs.reduce_bytes = 2;
  inputs.micro_batches = 2;
  expect_predicted("bf16 gradients travel", inputs);
}

TEST(StepMemoryTest, Hybrid) {
  MemoryInputs inputs = on_mesh(2, 2);
  inputs.micro_batches = 2;
  inputs.step.reduce = ReduceWhen::kTwoHop;
  expect_predicted("two hops", inputs);
}

TEST(StepMemoryTest, Offload) {
  MemoryInputs inputs = on_mesh(4, 1);
  inputs.step.host_shards = true;
  expect_predicted("shards", inputs);
  inputs = on_mesh(1, 1);
  inputs.step.checkpointing = Checkpointing::kFull;
  inputs.step.offload_horizon = 1;
  expect_predicted("activations", inputs);
}

}  // namespace
}  // namespace tessera
