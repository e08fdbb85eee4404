#include "train/auto_size.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>
#include <c10/core/CachingDeviceAllocator.h>

#include <algorithm>
#include <string>

#include "base/error.h"
#include "base/machine.h"
#include "base/text_format.h"
#include "model/causal_lm.h"
#include "ops/device.h"
#include "optim/registry.h"
#include "parallel/fake_communicator.h"
#include "train/step_settings.h"

namespace tessera {
namespace {

Error does_not_fit(const MemoryInputs& inputs, std::int64_t budget) {
  return Error(ErrorKind::kResource,
               "not even one row of " + std::to_string(inputs.block_size) +
                   " tokens fits: a step would hold " +
                   format_bytes(static_cast<std::uint64_t>(plan_memory(inputs).total())) +
                   ", and tensors may take " + format_bytes(static_cast<std::uint64_t>(budget)),
               "train.auto_batch, train.auto_block_size", memory_remedies(inputs));
}

BatchContext one_row(std::int64_t block_size, const at::Device& device) {
  const auto integers = at::TensorOptions().dtype(at::kLong).device(device);
  BatchContext context;
  context.ids = at::zeros({1, block_size}, integers);
  context.labels = at::zeros({1, block_size}, integers);
  return context;
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

std::int64_t probe_step(const RunPlan& plan, MemoryInputs inputs) {
  inputs.micro_rows = 1;
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

std::int64_t fitting_rows(const MemoryInputs& inputs, std::int64_t most, std::int64_t budget) {
  const auto rows = largest_micro_rows(inputs, most, budget);
  if (!rows.has_value()) throw does_not_fit(inputs, budget);
  return *rows;
}

std::int64_t fitting_block(const MemoryInputs& inputs, std::int64_t budget) {
  const auto block = largest_block_size(inputs, budget);
  if (!block.has_value()) throw does_not_fit(inputs, budget);
  return *block;
}

}  // namespace tessera
