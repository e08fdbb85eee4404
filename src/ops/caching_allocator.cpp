#include "ops/caching_allocator.h"

#include <c10/core/CPUAllocator.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <list>
#include <map>
#include <mutex>

#include "base/error.h"

namespace tessera {
namespace {

constexpr std::int64_t kHugePage = 2 << 20;

// Stands in the 64 bytes before the tensor's data, so that freeing needs no table.
struct Header {
  void* state;
  std::int64_t bytes;  // of the whole block, header included
  bool kept;           // from the pool; else from malloc
};
constexpr std::int64_t kHeaderBytes = 64;
static_assert(sizeof(Header) <= kHeaderBytes);

std::int64_t rounded(std::int64_t bytes) {
  const std::int64_t unit = bytes >= kHugePage / 2 ? 64 << 10 : 4096;
  return (bytes + unit - 1) / unit * unit;
}

std::string in_mib(std::int64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f MiB", static_cast<double>(bytes) / (1 << 20));
  return text;
}

[[noreturn]] void refuse(std::int64_t bytes, std::int64_t in_use, const std::string& why) {
  throw Error(ErrorKind::kResource, "out of memory: cannot allocate " + in_mib(bytes) + " beside " +
                                        in_mib(in_use) + " of tensors: " + why);
}

}  // namespace

struct CachingAllocator::State {
  struct Kept {
    void* block;
    std::int64_t bytes;
  };
  std::mutex mutex;
  std::list<Kept> by_age;  // least recently used first
  std::multimap<std::int64_t, std::list<Kept>::iterator> by_size;
  AllocatorStatistics statistics;
  std::int64_t greatest_in_use = 0, limit = 0;

  void* take(std::int64_t bytes) {
    // A block up to an eighth larger will do: padding is cheaper than a fresh block.
    const auto found = by_size.lower_bound(bytes);
    if (found == by_size.end() ||
        found->first > bytes + std::max(bytes / 8, std::int64_t{64 << 10}))
      return nullptr;
    void* const block = found->second->block;
    statistics.cached -= found->first;
    by_age.erase(found->second);
    by_size.erase(found);
    return block;
  }

  void release_oldest() {
    const Kept oldest = by_age.front();
    for (auto [it, end] = by_size.equal_range(oldest.bytes); it != end; ++it) {
      if (it->second == by_age.begin()) {
        by_size.erase(it);
        break;
      }
    }
    by_age.pop_front();
    statistics.cached -= oldest.bytes;
    ::munmap(oldest.block, static_cast<std::size_t>(oldest.bytes));
  }

  void* fresh(std::int64_t bytes) {
    // Room for `bytes` under the bound: what was kept longest without use goes first.
    const std::int64_t bound = std::max(greatest_in_use, statistics.in_use + bytes) * 6 / 5;
    while (!by_age.empty() && statistics.in_use + statistics.cached + bytes > bound)
      release_oldest();
    void* block = map(bytes);
    if (block == nullptr) {
      while (!by_age.empty()) release_oldest();
      block = map(bytes);
    }
    if (block == nullptr)
      refuse(bytes, statistics.in_use, "the system has no more for this process");
    ++statistics.system_requests;
    return block;
  }

  static void* map(std::int64_t bytes) {
    void* block = ::mmap(nullptr, static_cast<std::size_t>(bytes), PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (block == MAP_FAILED) return nullptr;
    if (bytes >= 2 * kHugePage) ::madvise(block, static_cast<std::size_t>(bytes), MADV_HUGEPAGE);
    return block;
  }

  void count(std::int64_t bytes) {
    statistics.in_use += bytes;
    statistics.peak_in_use = std::max(statistics.peak_in_use, statistics.in_use);
    greatest_in_use = std::max(greatest_in_use, statistics.in_use);
  }

  void keep(void* block, std::int64_t bytes) {
    by_age.push_back({block, bytes});
    by_size.emplace(bytes, std::prev(by_age.end()));
    statistics.cached += bytes;
  }

  static void release(void* data);
};

void CachingAllocator::State::release(void* data) {
  if (data == nullptr) return;
  void* const block = static_cast<char*>(data) - kHeaderBytes;
  const Header header = *static_cast<const Header*>(block);
  auto* const state = static_cast<State*>(header.state);
  {
    const std::lock_guard lock(state->mutex);
    state->statistics.in_use -= header.bytes;
    if (header.kept) state->keep(block, header.bytes);
  }
  if (!header.kept) std::free(block);
}

CachingAllocator::CachingAllocator() : state_(new State) {}

CachingAllocator::~CachingAllocator() {
  release_cached();
  // Living tensors still point to the state: it is left to the process then.
  if (statistics().in_use == 0) delete state_;
}

c10::DataPtr CachingAllocator::allocate(size_t size) {
  const at::Device cpu(at::kCPU);
  if (size == 0) return {nullptr, nullptr, &State::release, cpu};
  std::int64_t bytes = static_cast<std::int64_t>(size) + kHeaderBytes;
  const bool kept = bytes >= kSmallest;
  void* block = nullptr;
  {
    const std::lock_guard lock(state_->mutex);
    const std::int64_t in_use = state_->statistics.in_use;
    if (state_->limit > 0 && in_use + bytes > state_->limit) {
      refuse(bytes, in_use, "the limit of this machine or control group is near");
    }
    if (kept) {
      bytes = rounded(bytes);
      block = state_->take(bytes);
      if (block != nullptr) {
        bytes = static_cast<const Header*>(block)->bytes;
      } else {
        block = state_->fresh(bytes);
      }
    } else if (::posix_memalign(&block, kHeaderBytes, static_cast<std::size_t>(bytes)) != 0) {
      refuse(bytes, in_use, "the system has no more for this process");
    }
    state_->count(bytes);
  }
  *static_cast<Header*>(block) = {.state = state_, .bytes = bytes, .kept = kept};
  void* const data = static_cast<char*>(block) + kHeaderBytes;
  return {data, data, &State::release, cpu};
}

c10::DeleterFnPtr CachingAllocator::raw_deleter() const { return &State::release; }

void CachingAllocator::copy_data(void* destination, const void* source, std::size_t count) const {
  std::memcpy(destination, source, count);
}

void CachingAllocator::set_limit(std::int64_t bytes) {
  const std::lock_guard lock(state_->mutex);
  state_->limit = bytes;
}

AllocatorStatistics CachingAllocator::statistics() const {
  const std::lock_guard lock(state_->mutex);
  return state_->statistics;
}

void CachingAllocator::reset_peak() {
  const std::lock_guard lock(state_->mutex);
  state_->statistics.peak_in_use = state_->statistics.in_use;
}

void CachingAllocator::release_cached() {
  const std::lock_guard lock(state_->mutex);
  while (!state_->by_age.empty()) state_->release_oldest();
}

CachingAllocator& install_caching_allocator() {
  // Torch's registration is global and for good, so this is too.
  static CachingAllocator* const allocator = [] {
    auto* made = new CachingAllocator;
    c10::SetCPUAllocator(made, /*priority=*/1);
    return made;
  }();
  return *allocator;
}

}  // namespace tessera
