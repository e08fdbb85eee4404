#include "ops/caching_allocator.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/error.h"

namespace tessera {
namespace {

constexpr std::size_t kMiB = 1 << 20;

TEST(CachingAllocatorTest, ABlockComesBackToARequestOfItsSize) {
  CachingAllocator allocator;
  void* first = nullptr;
  {
    const c10::DataPtr data = allocator.allocate(10 * kMiB);
    first = data.get();
    std::memset(first, 1, 10 * kMiB);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(first) % 64, 0u);
    EXPECT_GE(allocator.statistics().in_use, static_cast<std::int64_t>(10 * kMiB));
  }
  EXPECT_EQ(allocator.statistics().in_use, 0);
  const c10::DataPtr again = allocator.allocate(9 * kMiB + 512 * 1024);
  EXPECT_EQ(again.get(), first);
  EXPECT_EQ(allocator.statistics().system_requests, 1);
}

TEST(CachingAllocatorTest, SteadyStateAsksTheSystemForNothing) {
  CachingAllocator allocator;
  const auto step = [&] {
    const c10::DataPtr a = allocator.allocate(3 * kMiB), b = allocator.allocate(kMiB);
    { const c10::DataPtr c = allocator.allocate(5 * kMiB); }
    const c10::DataPtr d = allocator.allocate(5 * kMiB), small = allocator.allocate(100);
  };
  step();
  const auto requests = allocator.statistics().system_requests;
  for (int i = 0; i < 10; ++i) step();
  EXPECT_EQ(allocator.statistics().system_requests, requests);
}

TEST(CachingAllocatorTest, WhatIsKeptIsBounded) {
  CachingAllocator allocator;
  for (std::size_t size = 1; size < 40; ++size) allocator.allocate(size * kMiB);
  const AllocatorStatistics statistics = allocator.statistics();
  EXPECT_LE(statistics.cached, statistics.peak_in_use * 6 / 5);
  allocator.release_cached();
  EXPECT_EQ(allocator.statistics().cached, 0);
}

TEST(CachingAllocatorTest, TheLimitIsAnErrorAndNothingIsLost) {
  CachingAllocator allocator;
  allocator.set_limit(20 * kMiB);
  const c10::DataPtr data = allocator.allocate(15 * kMiB);
  try {
    allocator.allocate(6 * kMiB);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kResource);
  }
  EXPECT_NE(allocator.allocate(kMiB).get(), nullptr);
}

TEST(CachingAllocatorTest, RawUseWorks) {
  CachingAllocator allocator;
  void* raw = allocator.raw_allocate(100000);
  std::memset(raw, 0, 100000);
  allocator.raw_deallocate(raw);
  EXPECT_EQ(allocator.statistics().in_use, 0);
}

}  // namespace
}  // namespace tessera
