// What a training step of one rank holds in memory, predicted from shapes alone, and what would
// make it less. Owns: the way from settings to the prediction (StepCost) and from it to advice.
// Arithmetic without tensors, for --dry-run, `plan`, and the message when memory runs out.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "model/gpt2.h"
#include "parallel/mesh_groups.h"
#include "parallel/step_cost.h"
#include "parallel/step_plan.h"

namespace tessera {

struct MemoryInputs {
  Gpt2Shape shape;
  std::int64_t micro_rows = 0, block_size = 0;
  int micro_batches = 1;
  // Of one element as it is computed with, and as gradients travel.
  std::int64_t compute_bytes = 4, reduce_bytes = 4;
  bool loss_scaling = false;
  MeshLayout layout = {};
  StepPolicy step = {};
  std::int64_t optimizer_states = 2;  // f32 values for each trainable element
  bool device_is_host = true;         // a CPU: what is moved to the host stays in the same memory
};

// What a step of all micro-batches takes is counted from this; see StepCost.
StepCostInputs step_cost_inputs(const MemoryInputs& inputs);
inline StepCost plan_step_cost(const MemoryInputs& inputs) {
  return cost_of_step(step_cost_inputs(inputs));
}

struct MemoryPlan {
  MemoryUse peak;         // of the device, where it is worst
  std::int64_t host = 0;  // moved away from the device, at most
  bool device_is_host = true;

  // Of the device's memory.
  std::int64_t total() const { return peak.on_device() + (device_is_host ? host : 0); }
};

MemoryPlan plan_memory(const MemoryInputs& inputs);

// "parameters 475.2MiB, gradients …" — one line, largest first, without what is not there.
std::string describe(const MemoryPlan& plan);

// What to change, in the order in which to try it, each with what it would save: text for
// Error::remedy(). First what costs little time, then what costs more, last what changes the
// result.
std::string memory_remedies(const MemoryInputs& inputs);

// The largest value from `least` to `most` for which bytes_of(value) is at most `budget`, where
// larger values take more; none where `least` does not fit.
std::optional<std::int64_t> largest_fitting(
    std::int64_t least, std::int64_t most, std::int64_t budget,
    const std::function<std::int64_t(std::int64_t)>& bytes_of);

// Of train.batch_size (with the other settings as they are), and of data.block_size up to the
// model's context, for a device that has `budget` bytes.
std::optional<std::int64_t> largest_micro_rows(const MemoryInputs& inputs, std::int64_t most,
                                               std::int64_t budget);
std::optional<std::int64_t> largest_block_size(const MemoryInputs& inputs, std::int64_t budget);

}  // namespace tessera
