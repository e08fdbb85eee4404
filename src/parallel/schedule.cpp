#include "parallel/schedule.h"

#include <algorithm>

namespace tessera {
namespace {

int unit_count(const ScheduleInputs& inputs) { return static_cast<int>(inputs.unit_names.size()); }
int flat_count(const ScheduleInputs& inputs) { return static_cast<int>(inputs.flat_units.size()); }

// Writes one step. Keeps what is gathered at each point, so that nothing is gathered twice or freed
// while it is needed.
class Compiler {
 public:
  explicit Compiler(const ScheduleInputs& inputs)
      : inputs_(inputs),
        flat_of_(inputs.unit_names.size()),
        gathered_(inputs.flat_units.size()),
        used_(inputs.flat_units.size()) {
    for (int flat = 0; flat < flat_count(inputs); ++flat) {
      const FlatUnitSpan& span = flat_at(flat);
      for (int unit = span.first; unit <= span.last; ++unit) {
        flat_of_[static_cast<std::size_t>(unit)] = flat;
      }
    }
  }

  Schedule compile() {
    if (inputs_.computing_copy) refresh_whole_copies();
    for (int micro_batch = 0; micro_batch < inputs_.micro_batches; ++micro_batch) {
      micro_batch_ = micro_batch;
      add_forwards();
      if (inputs_.kind == ScheduleKind::kTrain) add_backwards();
    }
    if (inputs_.kind != ScheduleKind::kTrain) return std::move(schedule_);
    schedule_.push_back({.operation = Operation::kAgree});
    for (int flat = 0; flat < flat_count(inputs_); ++flat) {
      schedule_.push_back({.operation = Operation::kClipAndStep, .flat = flat});
    }
    if (inputs_.loss_scaling) schedule_.push_back({.operation = Operation::kUpdateScale});
    return std::move(schedule_);
  }

 private:
  const FlatUnitSpan& flat_at(int flat) const {
    return inputs_.flat_units[static_cast<std::size_t>(flat)];
  }
  bool sharded(int flat) const { return flat_at(flat).sharded; }
  Checkpointing checkpointing(int unit) const {
    return inputs_.checkpointing.empty() ? Checkpointing::kNone
                                         : inputs_.checkpointing[static_cast<std::size_t>(unit)];
  }
  bool offloaded(int unit) const {
    return inputs_.offload_horizon > 0 && inputs_.kind == ScheduleKind::kTrain && unit > 0 &&
           checkpointing(unit) == Checkpointing::kFull;
  }
  bool last_micro_batch() const { return micro_batch_ + 1 == inputs_.micro_batches; }

  // Replicated parameters in another precision than they are computed in: one copy a step.
  void refresh_whole_copies() {
    for (int flat = 0; flat < flat_count(inputs_); ++flat) {
      if (!sharded(flat)) schedule_.push_back({.operation = Operation::kGather, .flat = flat});
    }
  }

  std::int64_t live_elements() const {
    std::int64_t elements = 0;
    for (int flat = 0; flat < flat_count(inputs_); ++flat) {
      if (gathered_[static_cast<std::size_t>(flat)]) elements += flat_at(flat).elements;
    }
    return elements;
  }

  // Flat units but this one that are gathered before their turn.
  int gathered_early(int but) const {
    int count = 0;
    for (int flat = 0; flat < flat_count(inputs_); ++flat) {
      const auto index = static_cast<std::size_t>(flat);
      if (flat != but && gathered_[index] && !used_[index]) ++count;
    }
    return count;
  }

  void gather(int flat) {
    const auto index = static_cast<std::size_t>(flat);
    if (!sharded(flat) || gathered_[index]) return;
    schedule_.push_back(
        {.operation = Operation::kGather, .flat = flat, .micro_batch = micro_batch_});
    gathered_[index] = true;
    used_[index] = false;
  }

  // Gathers that are begun before their turn: those after `flat` in the given direction, in their
  // order, as far as the limits allow.
  void prefetch(int flat, int direction) {
    const int end = direction > 0 ? flat_count(inputs_) : flat_of(lowest()) - 1;
    for (int next = flat + direction; next != end; next += direction) {
      if (!sharded(next) || gathered_[static_cast<std::size_t>(next)]) continue;
      if (inputs_.gather_limit > 0 && gathered_early(flat) + 1 >= inputs_.gather_limit) return;
      if (inputs_.live_limit > 0 && live_elements() + flat_at(next).elements > inputs_.live_limit) {
        return;
      }
      gather(next);
    }
  }

  void free(int flat) {
    const auto index = static_cast<std::size_t>(flat);
    if (!sharded(flat) || !gathered_[index]) return;
    schedule_.push_back({.operation = Operation::kFree, .flat = flat, .micro_batch = micro_batch_});
    gathered_[index] = false;
  }

  int flat_of(int unit) const { return flat_of_[static_cast<std::size_t>(unit)]; }
  // The lowest unit that has a backward.
  int lowest() const { return std::min(inputs_.lowest_trainable, unit_count(inputs_) - 1); }

  // All flat units that a unit reads: its own, and those it has a tie to.
  std::vector<int> read_by(int unit) const {
    std::vector<int> flats;
    for (int flat = 0; flat < flat_count(inputs_); ++flat) {
      const std::vector<int>& users = flat_at(flat).users;
      if (flat == flat_of(unit) || std::find(users.begin(), users.end(), unit) != users.end()) {
        flats.push_back(flat);
      }
    }
    return flats;
  }

  void use(int unit) {
    for (const int flat : read_by(unit)) gather(flat);
  }
  void mark_used(int unit) {
    for (const int flat : read_by(unit)) used_[static_cast<std::size_t>(flat)] = true;
  }

  int last_forward_use(int flat) const {
    const FlatUnitSpan& span = flat_at(flat);
    return span.users.empty()
               ? span.last
               : std::max(span.last, *std::max_element(span.users.begin(), span.users.end()));
  }
  int first_forward_use(int flat) const {
    const FlatUnitSpan& span = flat_at(flat);
    return span.users.empty()
               ? span.first
               : std::min(span.first, *std::min_element(span.users.begin(), span.users.end()));
  }

  // Where backward begins at once, the last flat units stay: they would be gathered again
  // straight away.
  bool stays_for_backward(int flat) const {
    if (inputs_.kind != ScheduleKind::kTrain) return false;
    if (last_forward_use(flat) < lowest()) return false;  // no backward reads it
    return !inputs_.reshard_after_forward || flat + 2 >= flat_count(inputs_) ||
           last_forward_use(flat) + 1 == unit_count(inputs_);
  }

  void add_forwards() {
    const int units = unit_count(inputs_);
    const bool reduced_before = inputs_.mesh.replica > 1 && micro_batch_ > 0 &&
                                inputs_.reduce == ReduceWhen::kEachMicroBatch;
    for (int unit = 0; unit < units; ++unit) {
      use(unit);
      if (inputs_.forward_prefetch && unit == flat_at(flat_of(unit)).first) {
        prefetch(flat_of(unit), +1);
      }
      // The last unit's forward is the first to add to gradients again: the loss is made there.
      if (unit + 1 == units && reduced_before && inputs_.kind == ScheduleKind::kTrain) {
        add_for_buckets(Operation::kAccumulate);
      }
      schedule_.push_back(
          {.operation = Operation::kForward, .unit = unit, .micro_batch = micro_batch_});
      mark_used(unit);
      // This unit's input is nobody else's any more.
      if (offloaded(unit)) add(Operation::kOffload, unit);
      for (const int flat : read_by(unit)) {
        if (unit == last_forward_use(flat) && !stays_for_backward(flat)) free(flat);
      }
    }
  }

  void add(Operation operation, int unit) {
    schedule_.push_back({.operation = operation, .unit = unit, .micro_batch = micro_batch_});
  }

  void add_for_buckets(Operation operation) {
    for (int bucket = 0; bucket < static_cast<int>(inputs_.buckets.size()); ++bucket) {
      schedule_.push_back({.operation = operation, .micro_batch = micro_batch_, .bucket = bucket});
    }
  }

  void add_backwards() {
    const int units = unit_count(inputs_);
    int fetched = units;  // units from here on have been fetched
    for (int unit = units - 1; unit >= lowest(); --unit) {
      const int flat = flat_of(unit);
      use(unit);
      if (inputs_.backward_prefetch == BackwardPrefetch::kPre && unit == flat_at(flat).last) {
        prefetch(flat, -1);
      }
      // Those of the next `horizon` units; the unit itself at the latest.
      const int reach = std::max(unit - inputs_.offload_horizon, lowest());
      while (inputs_.offload_horizon > 0 && fetched > reach) {
        if (offloaded(--fetched)) add(Operation::kFetch, fetched);
      }
      if (checkpointing(unit) == Checkpointing::kFull) add(Operation::kRecompute, unit);
      add(Operation::kBackward, unit);
      mark_used(unit);
      // While the sums over the shard group of the flat unit before are surely done.
      begin_waiting_all_reduce();
      if (inputs_.backward_prefetch == BackwardPrefetch::kPost && unit == flat_at(flat).first) {
        prefetch(flat, -1);
      }
      end_backward_of(unit);
    }
    begin_waiting_all_reduce();
    // Read by forward alone: below the lowest trainable unit, and kept by a wish of the user's.
    for (int flat = 0; flat < flat_count(inputs_); ++flat) free(flat);
  }

  // After the last backward that reads or adds to a flat unit.
  void end_backward_of(int unit) {
    for (const int flat : read_by(unit)) {
      const int last = std::max(first_forward_use(flat), lowest());
      if (unit != last) continue;
      free(flat);
      if (!flat_at(flat).trainable) continue;
      const bool reduces = inputs_.reduce != ReduceWhen::kLastMicroBatch || last_micro_batch();
      if (reduces && sharded(flat)) {
        schedule_.push_back(
            {.operation = Operation::kReduceScatter, .flat = flat, .micro_batch = micro_batch_});
      }
      const bool over_replicas =
          inputs_.mesh.replica > 1 &&
          (last_micro_batch() || inputs_.reduce == ReduceWhen::kEachMicroBatch);
      if (over_replicas && completes_bucket(flat) >= 0) {
        waiting_ = completes_bucket(flat);
        // Nothing is under way in the shard group that it would have to wait for.
        if (!sharded(flat)) begin_waiting_all_reduce();
      }
    }
  }

  // The bucket that is complete once this flat unit's gradients are; -1: none.
  int completes_bucket(int flat) const {
    for (std::size_t bucket = 0; bucket < inputs_.buckets.size(); ++bucket) {
      if (inputs_.buckets[bucket].front() == flat) return static_cast<int>(bucket);
    }
    return -1;
  }

  void begin_waiting_all_reduce() {
    if (waiting_ < 0) return;
    schedule_.push_back(
        {.operation = Operation::kAllReduce, .micro_batch = micro_batch_, .bucket = waiting_});
    waiting_ = -1;
  }

  const ScheduleInputs& inputs_;
  Schedule schedule_;
  std::vector<int> flat_of_;  // by unit
  std::vector<bool> gathered_, used_;
  int micro_batch_ = -1;
  int waiting_ = -1;  // a bucket whose sum over replicas is next
};

}  // namespace

const char* to_string(Operation operation) {
  switch (operation) {
    case Operation::kGather: return "Gather";
    case Operation::kForward: return "Forward";
    case Operation::kFree: return "Free";
    case Operation::kOffload: return "Offload";
    case Operation::kFetch: return "Fetch";
    case Operation::kRecompute: return "Recompute";
    case Operation::kBackward: return "Backward";
    case Operation::kReduceScatter: return "ReduceScatter";
    case Operation::kAllReduce: return "AllReduce";
    case Operation::kAccumulate: return "Accumulate";
    case Operation::kAgree: return "Agree";
    case Operation::kClipAndStep: return "ClipAndStep";
    case Operation::kUpdateScale: return "UpdateScale";
  }
  return "?";
}

Schedule compile(const ScheduleInputs& inputs) { return Compiler(inputs).compile(); }

std::string flat_unit_name(const FlatUnitSpan& span, const std::vector<std::string>& unit_names) {
  const std::string& first = unit_names[static_cast<std::size_t>(span.first)];
  if (span.first == span.last) return first;
  return first + " to " + unit_names[static_cast<std::size_t>(span.last)];
}

std::string print(const Schedule& schedule, const ScheduleInputs& inputs) {
  std::string text;
  for (const Instruction& instruction : schedule) {
    text += to_string(instruction.operation);
    if (instruction.unit >= 0) {
      text += " " + inputs.unit_names[static_cast<std::size_t>(instruction.unit)];
    }
    if (instruction.flat >= 0) {
      text += " " + flat_unit_name(inputs.flat_units[static_cast<std::size_t>(instruction.flat)],
                                   inputs.unit_names);
    }
    if (instruction.bucket >= 0) text += " bucket " + std::to_string(instruction.bucket);
    if (instruction.micro_batch >= 0) {
      text += " micro_batch " + std::to_string(instruction.micro_batch);
    }
    text += "\n";
  }
  return text;
}

std::vector<Bucket> plan_buckets(const std::vector<std::int64_t>& gradient_bytes,
                                 std::int64_t bucket_bytes) {
  std::vector<Bucket> buckets;
  std::int64_t filled = 0;
  for (int unit = static_cast<int>(gradient_bytes.size()) - 1; unit >= 0; --unit) {
    const std::int64_t bytes = gradient_bytes[static_cast<std::size_t>(unit)];
    if (bytes == 0) continue;
    if (buckets.empty() || filled + bytes > bucket_bytes) {
      buckets.emplace_back();
      filled = 0;
    }
    buckets.back().push_back(unit);
    filled += bytes;
  }
  for (Bucket& bucket : buckets) std::reverse(bucket.begin(), bucket.end());
  return buckets;
}

}  // namespace tessera
