#include "ops/device.h"

#include <ATen/DeviceAccelerator.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace tessera {
namespace {

constexpr std::int64_t kBytes = std::int64_t{256} << 20;

// A tensor shows in the figure, and what was there before it is not lost.
void expect_a_tensor_to_show(const at::Device& device) {
  const at::Tensor first = at::full({1024}, 1.0, at::TensorOptions().device(device));
  const std::uint64_t before = memory_in_use(device);
  EXPECT_GT(before, 0u);
  const at::Tensor tensor = at::full({kBytes / 4}, 1.0F, at::TensorOptions().device(device));
  const std::uint64_t more = memory_in_use(device) - before;
  // The system counts pages, torch's allocator blocks of some MiB.
  EXPECT_GT(more, static_cast<std::uint64_t>(kBytes) * 9 / 10);
  EXPECT_LT(more, static_cast<std::uint64_t>(kBytes) * 11 / 10);
}

bool has_accelerator() {
  return at::getAccelerator(false).has_value() && at::accelerator::deviceCount() > 0;
}

TEST(Device, MemoryInUseOfTheProcess) { expect_a_tensor_to_show(at::kCPU); }

TEST(Device, MemoryInUseOfAnAccelerator) {
  if (!has_accelerator()) GTEST_SKIP() << "torch sees no accelerator on this machine";
  expect_a_tensor_to_show(resolve_device("auto"));
}

TEST(Device, AutoIsTheCpuWhereThereIsNothingElse) {
  EXPECT_EQ(resolve_device("auto").is_cpu(), !has_accelerator());
  EXPECT_EQ(resolve_device("cpu"), at::Device(at::kCPU));
}

TEST(Device, WhatIsNotThereIsNamed) {
  for (const char* name : {"gpu", "meta", "mps:99"}) {
    try {
      EXPECT_EQ(resolve_device(name).str(), "refused");
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kConfig);
      EXPECT_NE(std::string(error.what()).find(name), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace tessera
