// What a training step takes of one rank, predicted: memory by what it holds, at named points and
// at the worst, and the bytes that the rank sends. Owns: the arithmetic over a schedule, which
// follows Executor and FlatUnit instruction by instruction. Not: what a unit's own work takes
// (UnitCost, from the model), and how long anything takes (step_timeline.h). No tensors.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "parallel/schedule.h"
#include "parallel/step_plan.h"
#include "unit/unit_cost.h"

namespace tessera {

// What memory holds.
enum class Holding {
  kParameters,     // this rank's master weights
  kGathered,       // parameters as forward reads them, where that is another memory
  kGradients,      // this rank's
  kFullGradients,  // of flat units whose sum over ranks is not done
  kOptimizer,
  kActivations,  // kept from forward to backward, with units' inputs
  kWorking,      // one unit's own while it computes, and the gradient handed down
  kLogits,
  kCommunication,  // copies that are made to be sent or received
  kHost,           // moved away from the device
};
inline constexpr std::size_t kHoldings = 10;
const char* to_string(Holding holding);  // "optimizer state"

// Bytes of one rank.
struct MemoryUse {
  std::array<std::int64_t, kHoldings> bytes{};

  std::int64_t& operator[](Holding holding) { return bytes[static_cast<std::size_t>(holding)]; }
  std::int64_t operator[](Holding holding) const {
    return bytes[static_cast<std::size_t>(holding)];
  }
  std::int64_t on_device() const;  // all but kHost
  bool operator==(const MemoryUse&) const = default;
};

// Bytes that one rank sends, by where the receivers are.
struct LinkBytes {
  std::int64_t inside = 0, across = 0;  // the rank's node; to other nodes
  std::int64_t total() const { return inside + across; }
  LinkBytes& operator+=(const LinkBytes& other);
  bool operator==(const LinkBytes&) const = default;
};

struct StepTraffic {
  LinkBytes all_gather, reduce_scatter, all_reduce;
  LinkBytes total() const;
};

// Which ranks a group has: `size` of them, the first `stride` apart from the next.
struct GroupLayout {
  int size = 1, stride = 1;
  int ranks_per_node = 0;     // 0: all ranks on one node
  bool hierarchical = false;  // in two levels (two_level_communicator.h)
};

// What a rank sends in a ring (traffic.h), on the average over the ranks of a node, for `bytes` of
// the whole: all_gather and reduce_scatter (p-1)/p of it, all_reduce twice that. A hierarchical
// group of p ranks, k of them on each node, sends (p/k-1)/p across nodes and (k-1)/k inside.
LinkBytes gather_bytes(const GroupLayout& group, std::int64_t bytes);
LinkBytes all_reduce_bytes(const GroupLayout& group, std::int64_t bytes);

struct StepCostInputs {
  StepPlan plan;  // complete: with micro_batches, kind and the rest of ScheduleInputs
  std::vector<UnitCost> units;
  std::int64_t compute_bytes = 4, reduce_bytes = 4;  // of an element that is gathered, reduced
  std::int64_t optimizer_states = 2;                 // f32 values an element
  bool host_shards = false;                          // as StepPolicy
  bool device_is_host = true;  // a CPU: what is moved to the host needs no copy to be reduced
  int ranks_per_node = 0;      // 0: all on one node
  bool hierarchical = false;   // shard groups over several nodes gather in two steps
};

// Device memory around one instruction.
struct InstructionCost {
  std::int64_t peak = 0, after = 0;
  LinkBytes sent;
};

struct StepCost {
  // Points of the last micro-batch; the executor calls them start, forward, backward, step.
  MemoryUse at_start, after_forward, before_last_backward, after_backward, after_step;
  MemoryUse peak;           // where on_device() is greatest
  std::size_t peak_at = 0;  // index in the schedule
  std::int64_t host_peak = 0;
  StepTraffic traffic;
  Schedule schedule;
  std::vector<InstructionCost> instructions;  // of the schedule
};

// In steady state: the first step of a process starts with less.
StepCost cost_of_step(const StepCostInputs& inputs);

}  // namespace tessera
