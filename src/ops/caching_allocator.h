// Host memory for tensors that stays with the process: in steady state a training step gets the
// blocks of the step before and asks the system for nothing (fresh pages cost a quarter of the
// speed on a CPU). Owns: the blocks and their statistics.
#pragma once

#include <c10/core/Allocator.h>

#include <cstdint>

namespace tessera {

struct AllocatorStatistics {
  std::int64_t in_use = 0;       // bytes of living tensors
  std::int64_t peak_in_use = 0;  // since the start or reset_peak()
  std::int64_t cached = 0;       // bytes kept for reuse
  std::int64_t system_requests = 0;
};

// Thread-safe. Blocks from kSmallest bytes on are kept after use and given again to a request of
// nearly their size; smaller ones are left to malloc. What is kept is bounded: in_use + cached
// never exceeds 1.2 times the greatest in_use.
class CachingAllocator final : public c10::Allocator {
 public:
  static constexpr std::int64_t kSmallest = 32 << 10;

  CachingAllocator();
  ~CachingAllocator() override;

  // Error{kResource} where the system refuses, or where in_use would exceed the limit.
  c10::DataPtr allocate(size_t bytes) override;
  c10::DeleterFnPtr raw_deleter() const override;
  void copy_data(void* destination, const void* source, std::size_t count) const override;

  void set_limit(std::int64_t bytes);  // 0: none
  AllocatorStatistics statistics() const;
  void reset_peak();
  void release_cached();  // gives everything that is not in use back to the system

 private:
  struct State;
  State* state_;  // outlives the object while tensors do
};

// Makes one allocator of this class the one of all CPU tensors from now on, for the rest of the
// process: torch keeps a plain pointer to it. Call it before the first tensor; further calls return
// the same one.
CachingAllocator& install_caching_allocator();

}  // namespace tessera
