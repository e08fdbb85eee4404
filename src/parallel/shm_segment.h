// Memory that the ranks of one host share. Owns: the mapping, how ranks find it, the words by which
// they sleep and wake each other, and who is still alive. Not: what lies in it, or what for
// (shm_communicator.cpp).
//
// The memory is a memfd of rank 0, which the others open through /proc: it has no name, so nothing
// is left of it when the last process ends, however it ends, and it does not depend on the size of
// /dev/shm.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "parallel/transports.h"

namespace tessera {

// What one rank tells the others. Only that rank writes, but for `doorbell`.
struct alignas(64) ShmRank {
  static constexpr int kSlots = 8;
  enum class Presence : std::uint32_t { kAbsent, kPresent, kLeft, kFailed };

  // Chunks done, counted since the start: each stage of a chunk has its counter.
  alignas(64) std::atomic<std::uint64_t> copied{0};
  std::atomic<std::uint64_t> reduced{0};
  std::atomic<std::uint64_t> read{0};
  // What the chunk in each slot is, so that ranks notice when they are not at the same place.
  std::uint64_t signature[kSlots] = {};

  alignas(64) std::atomic<std::uint32_t> doorbell{0};
  std::atomic<std::uint32_t> sleeping{0};
  std::atomic<Presence> presence{Presence::kAbsent};
  std::atomic<std::int32_t> culprit{-1};  // with kFailed: the rank that it waited for in vain
  std::int64_t process_id = 0;
  std::uint64_t start_time = 0;  // of the process, in clock ticks: a process id alone is used again
};

class ShmSegment {
 public:
  using Clock = std::chrono::steady_clock;

  // Returns when all ranks of the group have mapped it. Error{kComm} names the ranks that did not
  // come; Error{kConfig} where this host does not let processes share memory so.
  explicit ShmSegment(const GroupPlace& place);
  ~ShmSegment();  // tells the others that this rank has left
  ShmSegment(const ShmSegment&) = delete;
  ShmSegment& operator=(const ShmSegment&) = delete;

  static constexpr std::size_t kSlotBytes = 256 * 1024;

  ShmRank& rank(int rank) const { return ranks_[static_cast<std::size_t>(rank)]; }
  ShmRank& self() const { return rank(rank_); }
  std::byte* slot(int rank, std::uint64_t chunk) const;

  // Wakes the ranks that sleep. After a counter or the presence was changed.
  void wake_others() const;
  // Wakes this rank's own sleeper from another thread.
  void wake_self() const;
  // Sleeps until a rank calls one of these, at most `limit`. `ready` is asked once more after this
  // rank is known as sleeping, so that no wake-up is lost.
  template <class Ready>
  void sleep(std::chrono::milliseconds limit, const Ready& ready) const {
    const std::uint32_t seen = self().doorbell.load(std::memory_order_acquire);
    self().sleeping.store(1, std::memory_order_seq_cst);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (!ready()) wait_for_doorbell(seen, limit);
    self().sleeping.store(0, std::memory_order_release);
  }

  // Whether that rank's process has ended (a zombie has). Reads /proc: not for every wait.
  bool process_has_ended(int rank) const;
  // This rank gives up because of `culprit`.
  void fail(int culprit) const;

 private:
  void create(const GroupPlace& place, class StoreClient& store);
  void open(const GroupPlace& place, class StoreClient& store);
  void map(int file, const GroupPlace& place);
  void await_ranks(const GroupPlace& place, class StoreClient& store, Clock::time_point deadline);
  void wait_for_doorbell(std::uint32_t seen, std::chrono::milliseconds limit) const;

  int rank_, world_size_;
  int file_ = -1;
  std::byte* memory_ = nullptr;
  std::size_t bytes_ = 0;
  std::span<ShmRank> ranks_;
};

}  // namespace tessera
