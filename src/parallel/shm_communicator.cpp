#include <algorithm>
#include <atomic>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "parallel/collective_communicator.h"
#include "parallel/ordered_worker.h"
#include "parallel/shm_plan.h"
#include "parallel/shm_segment.h"
#include "parallel/transport_factories.h"

namespace tessera {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLook{100};  // how often a rank that sleeps looks whether the others live
constexpr int kSpins = 500;         // a few microseconds
constexpr const char* kRemedy = "Look at the end of that rank's log.";

using Counter = std::atomic<std::uint64_t> ShmRank::*;

// A condition on other ranks' counters: of one rank, or of all (-1).
struct Need {
  Counter counter = &ShmRank::copied;
  std::uint64_t value = 0;
  int rank = -1;
};

// One collective on its way. A rank's thread moves chunks through their stages as far as the other
// ranks' counters let it, and sleeps when there is nothing that it can do: so with more ranks than
// processors a rank that runs does all it can before it makes way.
class ShmOperation {
 public:
  ShmOperation(const ShmPlan& plan, const ShmSegment& segment, int rank, int world_size,
               std::uint64_t first_chunk)
      : plan_(&plan),
        segment_(&segment),
        rank_(rank),
        world_size_(world_size),
        first_(first_chunk),
        end_(first_chunk + static_cast<std::uint64_t>(plan.chunks())),
        copied_(first_chunk),
        reduced_(first_chunk),
        read_(first_chunk) {}

  bool done() const { return read_ == end_; }
  std::uint64_t end() const { return end_; }
  // Does one stage of one chunk; false where every stage waits for others. Old chunks go first:
  // they are still in the cache.
  bool advance() {
    if (read_ < reduced_ && met(read_need())) {
      if (plan_->reads() && !plan_->reduces()) check_signatures(read_, read_need().rank);
      plan_->read(index(read_), read_);
      publish(&ShmRank::read, ++read_);
    } else if (reduced_ < copied_ && met(reduce_need())) {
      if (plan_->reduces()) check_signatures(reduced_, -1);
      plan_->reduce(index(reduced_), reduced_);
      publish(&ShmRank::reduced, ++reduced_);
    } else if (copied_ < end_ && met(copy_need())) {
      segment_->self().signature[copied_ % ShmRank::kSlots] = plan_->signature(index(copied_));
      plan_->copy(index(copied_), copied_);
      publish(&ShmRank::copied, ++copied_);
    } else {
      return false;
    }
    return true;
  }
  bool can_advance() const {
    return (read_ < reduced_ && met(read_need())) || (reduced_ < copied_ && met(reduce_need())) ||
           (copied_ < end_ && met(copy_need()));
  }
  // The ranks for which this one waits, in the oldest chunk that it cannot go on with.
  std::vector<int> late_ranks() const {
    if (read_ < reduced_) return late(read_need());
    if (reduced_ < copied_) return late(reduce_need());
    return late(copy_need());
  }
  // A rank whose chunk is not the same operation as here, or -1.
  int diverged() const { return diverged_; }

 private:
  std::int64_t index(std::uint64_t chunk) const {
    return static_cast<std::int64_t>(chunk - first_);
  }
  Need read_need() const {
    if (!plan_->reads()) return {};
    const bool sums = plan_->read_after() == ShmPlan::Counter::kReduced;
    return {sums ? &ShmRank::reduced : &ShmRank::copied, read_ + 1, plan_->read_from()};
  }
  Need reduce_need() const {
    return plan_->reduces() ? Need{&ShmRank::copied, reduced_ + 1} : Need{};
  }
  // The slot is free once all have read what was in it before.
  Need copy_need() const {
    return copied_ < ShmRank::kSlots ? Need{} : Need{&ShmRank::read, copied_ + 1 - ShmRank::kSlots};
  }
  bool met(const Need& need) const { return need.value == 0 || late(need).empty(); }
  std::vector<int> late(const Need& need) const {
    std::vector<int> ranks;
    for (int rank = 0; rank < world_size_; ++rank) {
      if (rank == rank_ || (need.rank >= 0 && need.rank != rank)) continue;
      const std::uint64_t value =
          (segment_->rank(rank).*need.counter).load(std::memory_order_acquire);
      if (value < need.value) ranks.push_back(rank);
    }
    return ranks;
  }
  void publish(Counter counter, std::uint64_t value) const {
    (segment_->self().*counter).store(value, std::memory_order_release);
    segment_->wake_others();
  }
  // This rank's own word may be of a later chunk already: where it waited for the last of the
  // others, and they did their share meanwhile, it has copied on. Theirs are not, until it has
  // read.
  void check_signatures(std::uint64_t chunk, int only) {
    const std::size_t slot = chunk % ShmRank::kSlots;
    const std::uint64_t own = plan_->signature(index(chunk));
    for (int rank = 0; rank < world_size_; ++rank) {
      if (rank == rank_ || (only >= 0 && only != rank)) continue;
      if (segment_->rank(rank).signature[slot] != own) diverged_ = rank;
    }
  }

  const ShmPlan* plan_;
  const ShmSegment* segment_;
  int rank_, world_size_;
  std::uint64_t first_, end_;
  std::uint64_t copied_, reduced_, read_;  // chunks done by this rank
  int diverged_ = -1;
};

class ShmCommunicator final : public CollectiveCommunicator {
 public:
  explicit ShmCommunicator(const GroupPlace& place)
      : CollectiveCommunicator(place.rank, place.world_size, "shm", at::Device(at::kCPU)),
        place_(place),
        timeout_(place.timeout),
        // With fewer processors than ranks, a rank that spins keeps another from what it waits for.
        spins_(std::thread::hardware_concurrency() >= static_cast<unsigned>(place.world_size)
                   ? kSpins
                   : 0),
        segment_(place) {}

  ~ShmCommunicator() override {
    closing_.store(true);
    segment_.wake_self();
  }

 private:
  std::unique_ptr<Work> start(Collective collective) override {
    return worker_.run([this, collective = std::move(collective)] { execute(collective); });
  }

  void execute(const Collective& collective) {
    const ShmPlan plan(collective, segment_, rank(), world_size());
    ShmOperation operation(plan, segment_, rank(), world_size(), chunk_);
    const auto deadline = ShmSegment::Clock::now() + timeout_;
    while (!operation.done()) {
      if (!operation.advance() && !spin(operation)) sleep(operation, collective, deadline);
      if (const int other = operation.diverged(); other >= 0) {
        give_up(other, name_of(other) + " is at another operation, or has another size", collective,
                "All ranks must run the same build with the same config.");
      }
    }
    chunk_ = operation.end();
  }

  bool spin(const ShmOperation& operation) const {
    for (int i = 0; i < spins_; ++i) {
      if (operation.can_advance()) return true;
    }
    return false;
  }

  void sleep(const ShmOperation& operation, const Collective& collective,
             ShmSegment::Clock::time_point deadline) {
    const auto now = ShmSegment::Clock::now();
    const auto left = std::chrono::duration_cast<milliseconds>(deadline - now);
    segment_.sleep(std::clamp(left, milliseconds(1), kLook),
                   [&] { return closing_.load() || operation.can_advance(); });
    if (operation.can_advance()) return;
    if (closing_.load()) {
      throw Error(ErrorKind::kComm, collective.describe() + " was given up: this rank is leaving",
                  describe_rank(*this));
    }
    for (const int late : operation.late_ranks()) look_at(late, operation, collective);
    if (ShmSegment::Clock::now() >= deadline) time_out(operation, collective);
  }

  // Throws where there is no use in waiting for that rank any longer.
  void look_at(int late, const ShmOperation& operation, const Collective& collective) {
    const ShmRank& other = segment_.rank(late);
    const std::string name = name_of(late);
    switch (other.presence.load(std::memory_order_acquire)) {
      case ShmRank::Presence::kFailed: {
        const int culprit = other.culprit.load(std::memory_order_relaxed);
        if (culprit == rank() || culprit < 0) {
          give_up(late, name + " gave up waiting for this one", collective);
        }
        give_up(culprit, name_of(culprit) + " is missing, as " + name + " found", collective);
      }
      case ShmRank::Presence::kLeft:
        if (operation.can_advance()) return;  // it left after its last share of this
        give_up(late, name + " has left the group", collective);
      default: break;
    }
    if (segment_.process_has_ended(late) && !operation.can_advance()) {
      give_up(late,
              "the process of " + name + " (" + std::to_string(other.process_id) + ") has ended",
              collective);
    }
  }

  [[noreturn]] void time_out(const ShmOperation& operation, const Collective& collective) {
    const std::vector<int> last = operation.late_ranks();
    std::string names;
    for (const int late : last) {
      names += (names.empty() ? "" : ", ") + std::to_string(place_.world_rank(late));
    }
    give_up(last.empty() ? -1 : last.front(),
            (last.size() > 1 ? "ranks " : "rank ") + names + " did not arrive within " +
                std::to_string(timeout_.count()) + " ms",
            collective,
            "Look whether it hangs or is only slow; parallel.timeout is how long others wait.");
  }

  [[noreturn]] void give_up(int culprit, const std::string& why, const Collective& collective,
                            const std::string& remedy = kRemedy) {
    segment_.fail(culprit);
    throw Error(ErrorKind::kComm, collective.describe() + " failed: " + why, place_.describe("shm"),
                remedy);
  }

  std::string name_of(int rank_of_group) const {
    return "rank " + std::to_string(place_.world_rank(rank_of_group));
  }

  GroupPlace place_;
  milliseconds timeout_;
  int spins_;
  ShmSegment segment_;
  std::uint64_t chunk_ = 0;  // the first of the next collective; counted alike on all ranks
  std::atomic<bool> closing_ = false;
  OrderedWorker worker_;  // last, so that it ends before what it uses
};

}  // namespace

std::unique_ptr<Communicator> make_shm_communicator(const GroupPlace& place) {
  if (place.local_world_size != place.world_size) {
    throw Error(ErrorKind::kConfig, "parallel.transport=shm, but not all ranks are on one host",
                place.describe("shm") + ", " + std::to_string(place.local_world_size) +
                    " of them on this host",
                "Set parallel.transport to gloo or mpi, or leave it at auto.");
  }
  return std::make_unique<ShmCommunicator>(place);
}

}  // namespace tessera
