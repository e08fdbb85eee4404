#include "parallel/step_timeline.h"

#include <algorithm>
#include <array>
#include <utility>

namespace tessera {
namespace {

class Clock {
 public:
  Clock(const StepCostInputs& inputs, const StepCost& cost, const NominalRates& rates)
      : inputs_(inputs),
        cost_(cost),
        rates_(rates),
        gathered_at_(inputs.plan.flat_units.size()),
        reduced_at_(inputs.plan.flat_units.size()),
        fetched_at_(inputs.units.size()),
        flats_of_unit_(inputs.units.size()) {
    for (std::size_t flat = 0; flat < inputs.plan.flat_units.size(); ++flat) {
      const FlatUnitSpan& span = inputs.plan.flat_units[flat].span;
      for (int unit = span.first; unit <= span.last; ++unit) reads(unit, flat);
      for (const int unit : span.users) reads(unit, flat);
    }
  }

  Timeline run() {
    double computing = 0;
    for (std::size_t index = 0; index < cost_.schedule.size(); ++index) {
      at_ = index;
      timeline_.issued.push_back(now_);
      execute(cost_.schedule[index]);
    }
    for (const TimelineSpan& span : timeline_.spans) {
      if (span.lane == Lane::kCompute) computing += span.end - span.begin;
    }
    timeline_.seconds = now_;
    timeline_.waiting = now_ - computing;
    return std::move(timeline_);
  }

 private:
  void reads(int unit, std::size_t flat) {
    flats_of_unit_[static_cast<std::size_t>(unit)].push_back(flat);
  }

  void execute(const Instruction& instruction) {
    const auto unit = static_cast<std::size_t>(instruction.unit);
    const auto flat = static_cast<std::size_t>(instruction.flat);
    switch (instruction.operation) {
      case Operation::kGather: gathered_at_[flat] = talk(Lane::kShardGroup); return;
      case Operation::kForward:
      case Operation::kRecompute: return compute(unit, inputs_.units[unit].forward_flops);
      case Operation::kBackward: return compute(unit, inputs_.units[unit].all.backward_flops);
      case Operation::kReduceScatter:
        if (reducing_ >= 0) wait_for(reduced_at_[static_cast<std::size_t>(reducing_)]);
        reduced_at_[flat] = talk(Lane::kShardGroup);
        reducing_ = instruction.flat;
        return;
      case Operation::kAllReduce: return all_reduce(static_cast<std::size_t>(instruction.bucket));
      case Operation::kOffload:
      case Operation::kFetch: return move(unit);
      case Operation::kAccumulate:
      case Operation::kAgree: return wait_for(all_reduced_at_);
      case Operation::kFree:
      case Operation::kClipAndStep:
      case Operation::kUpdateScale: return;
    }
  }

  void wait_for(double time) { now_ = std::max(now_, time); }

  double take(Lane lane, double begin, double seconds) {
    if (seconds <= 0) return begin;
    timeline_.spans.push_back(
        {.lane = lane, .instruction = at_, .begin = begin, .end = begin + seconds});
    return begin + seconds;
  }

  void compute(std::size_t unit, double flops) {
    for (const std::size_t flat : flats_of_unit_[unit]) wait_for(gathered_at_[flat]);
    wait_for(fetched_at_[unit]);
    now_ = take(Lane::kCompute, now_, flops / rates_.flops);
  }

  // Begins an operation of a group; returns when it ends.
  double talk(Lane lane) {
    double& free_at = lane_free_at_[static_cast<std::size_t>(lane)];
    const LinkBytes& sent = cost_.instructions[at_].sent;
    const auto inside = static_cast<double>(sent.inside), across = static_cast<double>(sent.across);
    // A ring is as fast as its slowest link; of two levels one follows the other.
    double seconds = inside / rates_.inside_bytes + across / rates_.across_bytes;
    if (sent.across > 0 && !inputs_.hierarchical) seconds = (inside + across) / rates_.across_bytes;
    free_at = take(lane, std::max(now_, free_at), seconds);
    all_reduced_at_ = std::max(all_reduced_at_, free_at);
    return free_at;
  }

  void all_reduce(std::size_t bucket) {
    for (const int flat : inputs_.plan.inputs.buckets[bucket]) {
      wait_for(reduced_at_[static_cast<std::size_t>(flat)]);
    }
    talk(Lane::kReplicas);
  }

  void move(std::size_t unit) {
    double& free_at = lane_free_at_[static_cast<std::size_t>(Lane::kHost)];
    const std::int64_t bytes = unit == 0 ? 0 : inputs_.units[unit - 1].output_bytes;
    free_at =
        take(Lane::kHost, std::max(now_, free_at), static_cast<double>(bytes) / rates_.host_bytes);
    if (cost_.schedule[at_].operation == Operation::kFetch) fetched_at_[unit] = free_at;
  }

  const StepCostInputs& inputs_;
  const StepCost& cost_;
  const NominalRates& rates_;
  Timeline timeline_;
  std::size_t at_ = 0;
  double now_ = 0, all_reduced_at_ = 0;
  int reducing_ = -1;
  std::array<double, kLanes> lane_free_at_{};
  std::vector<double> gathered_at_, reduced_at_, fetched_at_;
  std::vector<std::vector<std::size_t>> flats_of_unit_;
};

}  // namespace

const char* to_string(Lane lane) {
  switch (lane) {
    case Lane::kCompute: return "compute";
    case Lane::kShardGroup: return "shard group";
    case Lane::kReplicas: return "replicas";
    case Lane::kHost: return "host copies";
  }
  return "?";
}

Timeline timeline_of(const StepCostInputs& inputs, const StepCost& cost,
                     const NominalRates& rates) {
  return Clock(inputs, cost, rates).run();
}

}  // namespace tessera
