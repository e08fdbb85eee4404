#include "parallel/step_cost.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "parallel/traffic.h"

namespace tessera {
namespace {

constexpr std::int64_t kMasterBytes = 4;  // of an f32 weight, gradient or moment

// Bytes of a flat unit on one rank, and those that all ranks of the shard group have together.
struct FlatBytes {
  bool sharded = false;  // its parameters are gathered, its gradients reduced
  bool trainable = false;
  std::int64_t own_elements = 0, own_gradients = 0;  // of this rank
  std::int64_t gathered = 0, always_gathered = 0;    // bytes
  std::int64_t gradient_elements = 0;                // full
};

FlatBytes bytes_of(const FlatUnitPlan& flat, const StepCostInputs& inputs) {
  const std::int64_t shards = inputs.plan.inputs.mesh.shard;
  FlatBytes bytes{.sharded = flat.span.sharded, .trainable = flat.span.trainable};
  for (const ParameterGroup& group : flat.groups) {
    bytes.own_elements += group.elements / shards;
    // Replicated parameters have a copy in the precision of computation, which stays.
    const bool copied = bytes.sharded ? group.persistent : inputs.compute_bytes != kMasterBytes;
    if (copied) bytes.always_gathered += group.elements * inputs.compute_bytes;
    if (bytes.sharded && !group.persistent) {
      bytes.gathered += group.elements * inputs.compute_bytes;
    }
  }
  bytes.gradient_elements = trainable_elements(flat.groups);
  bytes.own_gradients = bytes.gradient_elements / shards;
  return bytes;
}

// Numbers in the executor's agreement on a step: loss, three requests, squares by flat unit, a
// finding by rank.
std::int64_t agreement_size(std::size_t flats, int ranks) {
  return 4 + static_cast<std::int64_t>(flats) + ranks;
}

class Walk {
 public:
  explicit Walk(const StepCostInputs& inputs)
      : inputs_(inputs),
        schedule_inputs_(inputs.plan.inputs),
        units_(schedule_inputs_.unit_names.size()),
        flats_of_unit_(units_) {
    for (const FlatUnitPlan& flat : inputs.plan.flat_units) {
      const int index = static_cast<int>(flats_.size());
      flats_.push_back({.bytes = bytes_of(flat, inputs)});
      for (int unit = flat.span.first; unit <= flat.span.last; ++unit) reads(unit, index);
      for (const int unit : flat.span.users) reads(unit, index);
    }
    buckets_.resize(schedule_inputs_.buckets.size());
    const Mesh& mesh = schedule_inputs_.mesh;
    shard_group_ = {.size = mesh.shard,
                    .stride = 1,
                    .ranks_per_node = inputs.ranks_per_node,
                    .hierarchical = inputs.hierarchical};
    replica_group_ = {
        .size = mesh.replica, .stride = mesh.shard, .ranks_per_node = inputs.ranks_per_node};
  }

  StepCost run() {
    cost_.schedule = compile(schedule_inputs_);
    begin();
    cost_.at_start = use_;
    cost_.instructions.reserve(cost_.schedule.size());
    for (std::size_t index = 0; index < cost_.schedule.size(); ++index) {
      at_ = index;
      cost_.instructions.push_back({});
      touch();
      execute(cost_.schedule[index]);
      touch();
      cost_.instructions.back().after = use_.on_device();
    }
    cost_.after_step = use_;
    return std::move(cost_);
  }

 private:
  struct FlatState {
    FlatBytes bytes;
    bool gathered = false, fresh = false, full_gradient = false, first_reduction = true;
    bool reducing = false, straight = false;
    std::int64_t communication = 0;  // bytes that its reduction holds beside gradients
  };

  void reads(int unit, int flat) {
    flats_of_unit_[static_cast<std::size_t>(unit)].push_back(static_cast<std::size_t>(flat));
  }
  bool train() const { return schedule_inputs_.kind == ScheduleKind::kTrain; }
  Checkpointing checkpointing(std::size_t unit) const {
    return schedule_inputs_.checkpointing.empty() ? Checkpointing::kNone
                                                  : schedule_inputs_.checkpointing[unit];
  }
  const TrainingCost& training(std::size_t unit) const {
    return inputs_.units[unit].keeping(
        checkpointing(unit) == Checkpointing::kSelective ? Keep::kProducts : Keep::kAll);
  }
  // A unit's input is the output of the one before.
  std::int64_t input_bytes(std::size_t unit) const {
    return unit == 0 ? 0 : inputs_.units[unit - 1].output_bytes;
  }

  // Memory that is there from one step to the next.
  void begin() {
    for (const FlatState& flat : flats_) {
      const FlatBytes& bytes = flat.bytes;
      const auto place = [&](Holding holding) {
        return inputs_.host_shards ? Holding::kHost : holding;
      };
      use_[place(Holding::kParameters)] += bytes.own_elements * kMasterBytes;
      use_[Holding::kGathered] += bytes.always_gathered;
      if (!train()) continue;
      use_[place(Holding::kGradients)] += bytes.own_gradients * kMasterBytes;
      use_[place(Holding::kOptimizer)] +=
          bytes.own_gradients * kMasterBytes * inputs_.optimizer_states;
    }
  }

  // Notes the memory of this moment, with what one unit or one operation holds for a while.
  void touch(std::int64_t working = 0, std::int64_t logits = 0, std::int64_t communication = 0) {
    MemoryUse now = use_;
    now[Holding::kWorking] += working;
    now[Holding::kLogits] += logits;
    now[Holding::kCommunication] += communication;
    const std::int64_t bytes = now.on_device();
    InstructionCost& instruction = cost_.instructions.back();
    instruction.peak = std::max(instruction.peak, bytes);
    cost_.host_peak = std::max(cost_.host_peak, now[Holding::kHost]);
    if (bytes > cost_.peak.on_device()) {
      cost_.peak = now;
      cost_.peak_at = at_;
    }
  }

  void execute(const Instruction& instruction) {
    const auto unit = static_cast<std::size_t>(instruction.unit);
    const auto flat = static_cast<std::size_t>(instruction.flat);
    switch (instruction.operation) {
      case Operation::kGather: return gather(flats_[flat]);
      case Operation::kFree: return free(flats_[flat]);
      case Operation::kForward: return forward(unit);
      case Operation::kOffload: return move(unit, true);
      case Operation::kFetch: return move(unit, false);
      case Operation::kRecompute: return recompute(unit);
      case Operation::kBackward: return backward(instruction);
      case Operation::kReduceScatter: return reduce_scatter(flat);
      case Operation::kAllReduce: return all_reduce(static_cast<std::size_t>(instruction.bucket));
      case Operation::kAccumulate: return finish_reductions();
      case Operation::kAgree: return agree();
      case Operation::kClipAndStep: flats_[flat].first_reduction = true; return;
      case Operation::kUpdateScale: return;
    }
  }

  void gather(FlatState& flat) {
    if (!flat.bytes.sharded || flat.gathered) return;
    flat.gathered = true;
    use_[Holding::kGathered] += flat.bytes.gathered;
    std::int64_t bytes = flat.bytes.gathered;
    // What stays gathered is brought up to date once a step.
    if (!std::exchange(flat.fresh, true)) bytes += flat.bytes.always_gathered;
    sent(cost_.traffic.all_gather, gather_bytes(shard_group_, bytes));
  }

  void free(FlatState& flat) {
    if (!std::exchange(flat.gathered, false)) return;
    use_[Holding::kGathered] -= flat.bytes.gathered;
  }

  void sent(LinkBytes& verb, const LinkBytes& bytes) {
    verb += bytes;
    cost_.instructions.back().sent += bytes;
  }

  void require_gradients(std::size_t unit) {
    for (const std::size_t index : flats_of_unit_[unit]) {
      FlatState& flat = flats_[index];
      if (!flat.bytes.sharded || !flat.bytes.trainable) continue;
      if (std::exchange(flat.full_gradient, true)) continue;
      use_[Holding::kFullGradients] += flat.bytes.gradient_elements * kMasterBytes;
    }
  }

  void forward(std::size_t unit) {
    const UnitCost& cost = inputs_.units[unit];
    const bool last = unit + 1 == units_;
    if (train() && last) require_gradients(unit);
    const bool lean = !train() || checkpointing(unit) == Checkpointing::kFull ||
                      static_cast<int>(unit) < schedule_inputs_.lowest_trainable;
    const std::int64_t peak = lean ? cost.lean_peak : training(unit).forward_peak;
    const std::int64_t logits = std::min(cost.logits_bytes, peak);
    touch(peak - logits, logits);
    use_[Holding::kActivations] += cost.output_bytes;
    if (!lean) use_[Holding::kActivations] += training(unit).kept_bytes;
    // Nothing will go back through it.
    if (!train() || static_cast<int>(unit) < schedule_inputs_.lowest_trainable) {
      use_[Holding::kActivations] -= input_bytes(unit);
    }
    if (last) cost_.after_forward = use_;
  }

  void move(std::size_t unit, bool to_host) {
    const std::int64_t bytes = to_host ? input_bytes(unit) : -input_bytes(unit);
    use_[Holding::kHost] += bytes;
    touch(0, 0, std::max<std::int64_t>(-bytes, 0));  // both are there while it is copied
    use_[Holding::kActivations] -= bytes;
  }

  void recompute(std::size_t unit) {
    touch(training(unit).forward_peak);
    use_[Holding::kActivations] += training(unit).kept_bytes;
  }

  void backward(const Instruction& instruction) {
    const auto unit = static_cast<std::size_t>(instruction.unit);
    const bool lowest = instruction.unit == lowest_with_backward();
    const bool last_micro_batch = instruction.micro_batch + 1 == schedule_inputs_.micro_batches;
    if (lowest && last_micro_batch) cost_.before_last_backward = use_;
    require_gradients(unit);
    const TrainingCost& cost = training(unit);
    touch(cost.backward_peak);
    use_[Holding::kActivations] -= cost.kept_bytes;
    use_[Holding::kWorking] = 0;  // the gradient that was handed down to this unit
    if (lowest && last_micro_batch) cost_.after_backward = use_;
    use_[Holding::kActivations] -= input_bytes(unit);
    if (!lowest) use_[Holding::kWorking] = input_bytes(unit);
  }

  int lowest_with_backward() const {
    return std::min(schedule_inputs_.lowest_trainable, static_cast<int>(units_) - 1);
  }

  void reduce_scatter(std::size_t index) {
    if (scattering_ >= 0) finish(flats_[static_cast<std::size_t>(scattering_)]);
    scattering_ = static_cast<int>(index);
    FlatState& flat = flats_[index];
    const FlatBytes& bytes = flat.bytes;
    const bool lower = inputs_.reduce_bytes != kMasterBytes && schedule_inputs_.mesh.shard > 1;
    const std::int64_t element = lower ? inputs_.reduce_bytes : kMasterBytes;
    flat.reducing = true;
    flat.straight =
        flat.first_reduction && !lower && (!inputs_.host_shards || inputs_.device_is_host);
    if (lower) {
      flat.communication = bytes.gradient_elements * element;
      touch(0, 0, flat.communication);
      use_[Holding::kFullGradients] -= bytes.gradient_elements * kMasterBytes;
      flat.full_gradient = false;
    }
    if (!flat.straight) flat.communication += bytes.own_gradients * element;
    use_[Holding::kCommunication] += flat.communication;
    sent(cost_.traffic.reduce_scatter,
         gather_bytes(shard_group_, bytes.gradient_elements * element));
  }

  // Waits for a reduction, and gives up what it held.
  void finish(FlatState& flat) {
    if (!std::exchange(flat.reducing, false)) return;
    const bool converts = !flat.straight && !flat.first_reduction &&
                          inputs_.reduce_bytes != kMasterBytes && schedule_inputs_.mesh.shard > 1;
    if (converts) touch(0, 0, flat.bytes.own_gradients * kMasterBytes);
    flat.first_reduction = false;
    use_[Holding::kCommunication] -= std::exchange(flat.communication, 0);
    if (std::exchange(flat.full_gradient, false)) {
      use_[Holding::kFullGradients] -= flat.bytes.gradient_elements * kMasterBytes;
    }
  }

  void all_reduce(std::size_t index) {
    std::int64_t elements = 0;
    for (const int member : schedule_inputs_.buckets[index]) {
      FlatState& flat = flats_[static_cast<std::size_t>(member)];
      finish(flat);
      elements += flat.bytes.own_gradients;
    }
    const std::int64_t bytes = elements * inputs_.reduce_bytes;
    const bool copied =
        inputs_.reduce_bytes != kMasterBytes || (inputs_.host_shards && !inputs_.device_is_host);
    buckets_[index] = copied ? bytes : 0;
    use_[Holding::kCommunication] += buckets_[index];
    sent(cost_.traffic.all_reduce, all_reduce_bytes(replica_group_, bytes));
  }

  void finish_reductions() {
    if (scattering_ >= 0) {
      finish(flats_[static_cast<std::size_t>(std::exchange(scattering_, -1))]);
    }
    for (std::int64_t& bytes : buckets_) {
      use_[Holding::kCommunication] -= std::exchange(bytes, 0);
    }
  }

  // One number is added over all ranks before the step, the weight of its batch.
  void agree() {
    finish_reductions();
    const int ranks = schedule_inputs_.mesh.world_size();
    const std::int64_t numbers = agreement_size(flats_.size(), ranks);
    GroupLayout world{.size = ranks, .stride = 1, .ranks_per_node = inputs_.ranks_per_node};
    sent(cost_.traffic.all_reduce, all_reduce_bytes(world, 8));
    sent(cost_.traffic.all_reduce, all_reduce_bytes(world, 8 * numbers));
  }

  const StepCostInputs& inputs_;
  const ScheduleInputs& schedule_inputs_;
  std::size_t units_;
  std::vector<FlatState> flats_;
  std::vector<std::vector<std::size_t>> flats_of_unit_;
  std::vector<std::int64_t> buckets_;  // bytes of a bucket's copy on the way
  GroupLayout shard_group_, replica_group_;
  MemoryUse use_;
  StepCost cost_;
  std::size_t at_ = 0;
  int scattering_ = -1;
};

// Neighbours in a ring send to each other: of a node's ranks one sends to another node.
LinkBytes split(const GroupLayout& group, std::int64_t bytes) {
  const int node = group.ranks_per_node;
  if (node <= 0 || (group.size - 1) * group.stride < node) return {.inside = bytes, .across = 0};
  const int on_node = std::max(1, (node + group.stride - 1) / group.stride);
  return {.inside = bytes - bytes / on_node, .across = bytes / on_node};
}

}  // namespace

const char* to_string(Holding holding) {
  switch (holding) {
    case Holding::kParameters: return "parameters";
    case Holding::kGathered: return "gathered parameters";
    case Holding::kGradients: return "gradients";
    case Holding::kFullGradients: return "full gradients";
    case Holding::kOptimizer: return "optimizer state";
    case Holding::kActivations: return "activations";
    case Holding::kWorking: return "working memory";
    case Holding::kLogits: return "logits";
    case Holding::kCommunication: return "communication";
    case Holding::kHost: return "host memory";
  }
  return "?";
}

std::int64_t MemoryUse::on_device() const {
  return std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0}) - (*this)[Holding::kHost];
}

LinkBytes& LinkBytes::operator+=(const LinkBytes& other) {
  inside += other.inside;
  across += other.across;
  return *this;
}

LinkBytes StepTraffic::total() const {
  LinkBytes sum = all_gather;
  sum += reduce_scatter;
  sum += all_reduce;
  return sum;
}

LinkBytes gather_bytes(const GroupLayout& group, std::int64_t bytes) {
  const std::int64_t ranks = group.size, node = group.ranks_per_node;
  const bool two_steps = group.hierarchical && node > 0 && ranks > node && ranks % node == 0;
  if (two_steps) {
    return {.inside = bytes * (node - 1) / node, .across = bytes / ranks * (ranks / node - 1)};
  }
  return split(group, ring_bytes(Verb::kAllGather, bytes / ranks, group.size, false));
}

LinkBytes all_reduce_bytes(const GroupLayout& group, std::int64_t bytes) {
  return split(group, ring_bytes(Verb::kAllReduce, bytes, group.size, false));
}

StepCost cost_of_step(const StepCostInputs& inputs) { return Walk(inputs).run(); }

}  // namespace tessera
