#include "train/memory_plan.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/text_format.h"
#include "model/gpt2_cost.h"

namespace tessera {
namespace {

std::string saves(std::int64_t bytes) {
  return " (saves about " + format_bytes(static_cast<std::uint64_t>(bytes)) + ")";
}

// Numbered remedies, each with what it saves.
class Remedies {
 public:
  explicit Remedies(const MemoryInputs& inputs)
      : inputs_(inputs), now_(plan_memory(inputs).total()) {}

  // `change` makes the inputs smaller; what saves less than a hundredth is no remedy.
  void add(const std::string& what, const std::function<void(MemoryInputs&)>& change) {
    MemoryInputs less = inputs_;
    change(less);
    const std::int64_t saved = now_ - plan_memory(less).total();
    if (saved < now_ / 100) return;
    ++number_;
    text_ += (number_ == 1 ? "" : "; ") + std::to_string(number_) + ") " + what + saves(saved);
  }
  std::string text() const {
    return number_ == 0 ? "Use a smaller model, or a machine with more memory."
                        : "In this order: " + text_ + ".";
  }

 private:
  const MemoryInputs& inputs_;
  std::int64_t now_;
  int number_ = 0;
  std::string text_;
};

void add_checkpointing(Remedies& remedies, const MemoryInputs& inputs, Checkpointing kind) {
  const bool every_block = inputs.step.checkpoint_every == 1;
  if (inputs.step.checkpointing == Checkpointing::kFull && every_block) return;
  if (inputs.step.checkpointing == kind && every_block) return;
  if (inputs.step.checkpointing == Checkpointing::kFull && kind == Checkpointing::kSelective) {
    return;
  }
  const bool full = kind == Checkpointing::kFull;
  remedies.add(std::string("parallel.activation_checkpointing=") + (full ? "full" : "selective") +
                   (full ? ": the same result, a third more arithmetic"
                         : ": the same result, little more arithmetic"),
               [=](MemoryInputs& less) {
                 less.step.checkpointing = kind;
                 less.step.checkpoint_every = 1;
               });
}

void add_sharding(Remedies& remedies, const MemoryInputs& inputs) {
  const int ranks = inputs.layout.mesh.world_size();
  const bool sharded = inputs.layout.mesh.shard > 1;
  if (sharded && inputs.micro_batches > 1 && inputs.step.reduce == ReduceWhen::kLastMicroBatch) {
    remedies.add("parallel.reduce=each: gradients travel after each micro-batch",
                 [](MemoryInputs& less) { less.step.reduce = ReduceWhen::kEachMicroBatch; });
  }
  if (sharded && !inputs.step.reshard_after_forward) {
    remedies.add("parallel.reshard_after_forward=true: parameters travel twice a step",
                 [](MemoryInputs& less) { less.step.reshard_after_forward = true; });
  }
  if (inputs.layout.mesh.shard < ranks) {
    remedies.add("parallel.strategy=full_shard: each of the " + std::to_string(ranks) +
                     " ranks keeps its part of the model, and more travels",
                 [=](MemoryInputs& less) {
                   less.layout.mesh = {.shard = ranks, .replica = 1};
                   less.step.reshard_after_forward = true;
                   less.step.reduce = ReduceWhen::kEachMicroBatch;
                 });
  }
}

void add_offload(Remedies& remedies, const MemoryInputs& inputs) {
  if (inputs.device_is_host) return;
  if (inputs.step.checkpointing == Checkpointing::kFull && inputs.step.offload_horizon == 0) {
    remedies.add("parallel.activation_offload=true",
                 [](MemoryInputs& less) { less.step.offload_horizon = 4; });
  }
  if (!inputs.step.host_shards) {
    remedies.add("parallel.cpu_offload=true: the optimizer steps on the host",
                 [](MemoryInputs& less) { less.step.host_shards = true; });
  }
}

}  // namespace

StepCostInputs step_cost_inputs(const MemoryInputs& inputs) {
  StepCostInputs costs{.plan = plan_step(make_gpt2(inputs.shape), inputs.layout.mesh, inputs.step),
                       .units = gpt2_costs({.shape = inputs.shape,
                                            .rows = inputs.micro_rows,
                                            .block_size = inputs.block_size,
                                            .compute_bytes = inputs.compute_bytes,
                                            .on_cpu = inputs.device_is_host}),
                       .compute_bytes = inputs.compute_bytes,
                       .reduce_bytes = inputs.reduce_bytes,
                       .optimizer_states = inputs.optimizer_states,
                       .host_shards = inputs.step.host_shards,
                       .device_is_host = inputs.device_is_host,
                       .ranks_per_node = inputs.layout.ranks_per_node,
                       .hierarchical = inputs.layout.two_level};
  costs.plan.inputs.micro_batches = inputs.micro_batches;
  costs.plan.inputs.computing_copy = inputs.compute_bytes != 4;
  costs.plan.inputs.loss_scaling = inputs.loss_scaling;
  return costs;
}

MemoryPlan plan_memory(const MemoryInputs& inputs) {
  MemoryInputs few = inputs;
  // A first, a middle and a last one: further micro-batches hold what the middle one does.
  few.micro_batches = std::min(inputs.micro_batches, 3);
  const StepCost cost = plan_step_cost(few);
  return {.peak = cost.peak, .host = cost.host_peak, .device_is_host = inputs.device_is_host};
}

std::string describe(const MemoryPlan& plan) {
  std::vector<std::pair<std::int64_t, std::string>> parts;
  for (std::size_t i = 0; i < kHoldings; ++i) {
    const auto holding = static_cast<Holding>(i);
    const std::int64_t bytes = holding == Holding::kHost ? plan.host : plan.peak[holding];
    if (bytes > 0) parts.emplace_back(bytes, to_string(holding));
  }
  std::stable_sort(parts.begin(), parts.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  std::string text;
  for (const auto& [bytes, name] : parts) {
    text +=
        (text.empty() ? "" : ", ") + name + " " + format_bytes(static_cast<std::uint64_t>(bytes));
  }
  return text;
}

std::string memory_remedies(const MemoryInputs& inputs) {
  Remedies remedies(inputs);
  if (inputs.micro_rows > 1) {
    const std::int64_t rows = (inputs.micro_rows + 1) / 2;
    remedies.add("train.batch_size=" + std::to_string(rows) +
                     " with the same train.global_batch_size: more accumulation, the same result",
                 [=](MemoryInputs& less) { less.micro_rows = rows; });
  }
  add_checkpointing(remedies, inputs, Checkpointing::kSelective);
  add_sharding(remedies, inputs);
  add_checkpointing(remedies, inputs, Checkpointing::kFull);
  add_offload(remedies, inputs);
  if (inputs.shape.attn_dropout > 0) {
    remedies.add("model.attn_dropout=0", [](MemoryInputs& less) { less.shape.attn_dropout = 0; });
  }
  if (inputs.block_size > 1) {
    const std::int64_t block_size = inputs.block_size / 2;
    remedies.add("data.block_size=" + std::to_string(block_size),
                 [=](MemoryInputs& less) { less.block_size = block_size; });
  }
  if (inputs.shape.n_layer > 1) {
    const std::int64_t layers = inputs.shape.n_layer / 2;
    remedies.add("a smaller model, say model.n_layer=" + std::to_string(layers),
                 [=](MemoryInputs& less) { less.shape.n_layer = layers; });
  }
  return remedies.text();
}

std::optional<std::int64_t> largest_fitting(
    std::int64_t least, std::int64_t most, std::int64_t budget,
    const std::function<std::int64_t(std::int64_t)>& bytes_of) {
  if (least > most || bytes_of(least) > budget) return std::nullopt;
  std::int64_t fits = least, step = 1;
  // Doubling, so that values far beyond the answer are not asked for.
  while (fits + step <= most && bytes_of(fits + step) <= budget) {
    fits += step;
    step *= 2;
  }
  for (; step > 0; step /= 2) {
    if (fits + step <= most && bytes_of(fits + step) <= budget) fits += step;
  }
  return fits;
}

std::optional<std::int64_t> largest_micro_rows(const MemoryInputs& inputs, std::int64_t most,
                                               std::int64_t budget) {
  return largest_fitting(1, most, budget, [&](std::int64_t rows) {
    MemoryInputs other = inputs;
    other.micro_rows = rows;
    return plan_memory(other).total();
  });
}

std::optional<std::int64_t> largest_block_size(const MemoryInputs& inputs, std::int64_t budget) {
  return largest_fitting(1, inputs.shape.n_positions, budget, [&](std::int64_t block_size) {
    MemoryInputs other = inputs;
    other.block_size = block_size;
    return plan_memory(other).total();
  });
}

}  // namespace tessera
