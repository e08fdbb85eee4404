#include "train/auto_size.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>
#include <c10/core/CachingDeviceAllocator.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/machine.h"
#include "base/text_format.h"
#include "model/causal_lm.h"
#include "ops/device.h"
#include "optim/registry.h"
#include "parallel/fake_communicator.h"
#include "train/step_settings.h"
#include "train/torch_errors.h"

namespace tessera {
namespace {

constexpr std::int64_t kStepsOfText = 100;  // at least so many to go once through the data

std::string bytes_text(std::int64_t bytes) {
  return format_bytes(static_cast<std::uint64_t>(std::max<std::int64_t>(bytes, 0)));
}

std::string counted(std::int64_t number, const std::string& what) {
  return number == 1 ? "one " + what : std::to_string(number) + " " + what + "s";
}

Error does_not_fit(const MemoryInputs& least, const std::string& key, std::int64_t budget) {
  return Error(ErrorKind::kResource,
               "not even " + counted(least.micro_rows, "row") + " of " +
                   counted(least.block_size, "token") + " fits: a step would hold " +
                   bytes_text(plan_memory(least).total()) + ", and tensors of a rank may take " +
                   bytes_text(budget),
               key, memory_remedies(least));
}

MemoryInputs with_block(MemoryInputs inputs, std::int64_t block_size) {
  inputs.block_size = block_size;
  return inputs;
}

// Fewer rows of the same global batch are more micro-batches.
MemoryInputs with_rows(MemoryInputs inputs, TrainConfig train, std::int64_t rows) {
  train.batch_size = rows;
  inputs.micro_rows = rows;
  inputs.micro_batches =
      static_cast<int>(plan_batches(train, inputs.layout.mesh.world_size(), 0).micro_batches);
  return inputs;
}

void choose_block(MemoryInputs& inputs, std::int64_t budget) {
  const auto largest = largest_block_size(inputs, budget);
  if (!largest.has_value()) {
    throw does_not_fit(with_block(inputs, 1), "train.auto_block_size", budget);
  }
  inputs.block_size = *largest == inputs.shape.n_positions ? *largest : round_size(*largest);
}

void choose_rows(const SizeQuestion& question, std::int64_t budget, SizeAnswer& answer) {
  const TrainConfig& train = question.train;
  MemoryInputs& inputs = answer.inputs;
  const auto fits = [&](std::int64_t rows) {
    return plan_memory(with_rows(inputs, train, rows)).total() <= budget;
  };
  const std::int64_t ranks = inputs.layout.mesh.world_size();
  const std::int64_t global = train.global_batch_size;
  const std::int64_t most =
      global > 0
          ? (global + ranks - 1) / ranks
          : std::max<std::int64_t>(question.text_tokens / kStepsOfText / inputs.block_size / ranks /
                                       std::max<std::int64_t>(train.gradient_accumulation, 1),
                                   1);
  std::int64_t rows = most;
  if (fits(most)) {
    answer.rows_bound = global > 0 ? RowsBound::kGlobalBatch : RowsBound::kData;
    if (global == 0) rows = round_size(most);
  } else {
    const auto largest = largest_fitting(1, most, budget, [&](std::int64_t some) {
      return plan_memory(with_rows(inputs, train, some)).total();
    });
    if (!largest.has_value()) {
      throw does_not_fit(with_rows(inputs, train, 1), "train.auto_batch", budget);
    }
    answer.rows_bound = RowsBound::kMemory;
    rows = round_size(*largest);
    while (rows > 1 && !fits(rows)) rows = round_size(rows - 1);  // more micro-batches take more
  }
  inputs = with_rows(inputs, train, rows);
}

BatchContext one_row(std::int64_t block_size, const at::Device& device) {
  const auto integers = at::TensorOptions().dtype(at::kLong).device(device);
  BatchContext context;
  context.ids = at::zeros({1, block_size}, integers);
  context.labels = at::zeros({1, block_size}, integers);
  return context;
}

// Steps of one row, with the other ranks only pretended: bytes by which they take more than is
// predicted. 0 where they take less.
std::int64_t probe_excess(const RunPlan& plan, MemoryInputs inputs) {
  inputs.micro_rows = 1;
  inputs.micro_batches = std::min(inputs.micro_batches, 3);  // further ones hold what these do
  const Mesh mesh = inputs.layout.mesh;
  const auto world = make_fake_communicator(0, mesh.world_size());
  const auto shard = make_fake_communicator(0, mesh.shard);
  const auto replica = make_fake_communicator(0, mesh.replica);
  Chain chain = make_gpt2(plan.shape);
  CausalLmObjective objective;
  const std::unique_ptr<Optimizer> optimizer = make_optimizer(plan.config().optim);
  const std::int64_t before = tensor_memory(plan.device).allocated;
  Executor executor(
      chain, objective, optimizer.get(),
      {.mesh = mesh, .world = world.get(), .shard = shard.get(), .replica = replica.get()},
      {.compute_dtype = plan.precision.compute,
       .reduce_dtype = reduce_dtype(plan.config().precision),
       .device = plan.device,
       .loss_scale = {.enabled = plan.precision.loss_scaling},
       .step = inputs.step});
  for (FlatUnit& unit : executor.units()) unit.initialise(1);
  const std::vector<BatchContext> micro_batches(static_cast<std::size_t>(inputs.micro_batches),
                                                one_row(inputs.block_size, plan.device));
  executor.train_step(micro_batches, 0);  // the first step of a process takes less than later ones
  reset_peak_memory(plan.device);
  executor.train_step(micro_batches, 0);
  const TensorMemory used = tensor_memory(plan.device);
  const std::int64_t taken = used.peak - before + (inputs.device_is_host ? used.host : 0);
  return std::max<std::int64_t>(taken - plan_memory(inputs).total(), 0);
}

// Running out of memory here is as much an answer as not fitting by prediction.
std::int64_t probe(const RunPlan& plan, const MemoryInputs& inputs, const std::string& key) {
  std::int64_t excess = 0;
  try {
    translate_errors([&] { excess = probe_excess(plan, inputs); });
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kResource) throw;
    throw Error(error.kind(), "a step of one row, to find what fits, failed: " + error.reason(),
                key, memory_remedies(inputs));
  }
  return excess;
}

std::string reason_for_rows(RowsBound bound, std::int64_t budget) {
  const std::string memory =
      ", for tensors of a rank may take " + bytes_text(budget) + " (train.auto_batch)";
  switch (bound) {
    case RowsBound::kMemory: return ": what fits" + memory;
    case RowsBound::kGlobalBatch:
      return ": the rank's whole part of the global batch fits" + memory;
    case RowsBound::kData:
      return ", by the data and not by memory: a step takes at most one part in " +
             std::to_string(kStepsOfText) +
             " of the training data (train.auto_batch), unless train.global_batch_size says "
             "otherwise";
  }
  return {};
}

}  // namespace

std::int64_t tensor_budget(const at::Device& device, int ranks_of_host) {
  std::int64_t free = 0;
  if (device.is_cpu()) {
    free = static_cast<std::int64_t>(machine_facts().usable_memory_bytes()) / ranks_of_host;
  } else {
    auto* const allocator = dynamic_cast<c10::DeviceAllocator*>(c10::GetAllocator(device.type()));
    if (allocator == nullptr) {
      throw Error(ErrorKind::kConfig, "the device does not tell how much memory it has",
                  device.str(), "Set train.batch_size instead of train.auto_batch.");
    }
    free = static_cast<std::int64_t>(allocator->getMemoryInfo(device.index()).first);
  }
  return free / 10 * 9;
}

std::int64_t round_size(std::int64_t size) {
  std::int64_t unit = 1;
  while (size / unit >= 8) unit *= 2;
  return size / unit * unit;
}

SizeAnswer choose_sizes(const SizeQuestion& question, std::int64_t budget) {
  SizeAnswer answer{.inputs = question.inputs};
  if (question.train.auto_batch) answer.inputs = with_rows(answer.inputs, question.train, 1);
  if (question.find_block) choose_block(answer.inputs, budget);
  if (question.train.auto_batch) choose_rows(question, budget, answer);
  return answer;
}

std::int64_t find_sizes(RunPlan& plan, Ranks& ranks, const RecordedSizes& recorded,
                        std::int64_t budget, std::int64_t block_size, Log& log) {
  TrainConfig train = plan.config().train;
  const int world_size = plan.request.world_size();
  if (train.auto_batch && train.global_batch_size == 0 && recorded.global_rows > 0) {
    // The run keeps its global batch, in as many micro-batches as memory now asks for.
    train.global_batch_size = recorded.global_rows;
    train.gradient_accumulation = 0;
  }
  plan.batches = plan_batches(train, world_size, recorded.global_rows);
  const bool find_block = train.auto_block_size && recorded.block_size == 0;
  if (train.auto_block_size && !find_block) block_size = recorded.block_size;
  if (!find_block && !train.auto_batch) return block_size;

  const SizeQuestion question{.inputs = plan.memory(block_size),
                              .train = train,
                              .find_block = find_block,
                              .text_tokens = plan.data.train->size()};
  budget = ranks.least("tensor-budget", budget);
  SizeAnswer answer = choose_sizes(question, budget);
  std::string when;
  if (plan.request.dry_run) {
    when = "; predicted: a real start runs a step of one row to check, and may take less";
  } else {
    const char* const key = train.auto_batch ? "train.auto_batch" : "train.auto_block_size";
    budget = ranks.least("tensor-budget-probed", budget - probe(plan, answer.inputs, key));
    answer = choose_sizes(question, budget);
  }
  if (find_block) {
    block_size = answer.inputs.block_size;
    log.info("data.block_size = " + std::to_string(block_size) +
             ": what fits, for tensors of a rank may take " + bytes_text(budget) +
             " (train.auto_block_size); the run keeps it" + when);
  }
  if (!train.auto_batch) return block_size;
  const bool fixes_global = train.global_batch_size == 0;
  train.batch_size = answer.inputs.micro_rows;
  plan.batches = plan_batches(train, world_size, recorded.global_rows);
  std::string text = "train.batch_size = " + std::to_string(train.batch_size) +
                     reason_for_rows(answer.rows_bound, budget);
  if (fixes_global) {
    text += "; this makes the global batch " + counted(plan.batches.global_rows, "sequence") +
            ", which the run keeps when it is resumed";
  }
  log.info(text + when);
  return block_size;
}

}  // namespace tessera
