#include "ops/device.h"

#include <ATen/DeviceAccelerator.h>
#include <ATen/detail/CUDAHooksInterface.h>

#include <algorithm>

#include "base/error.h"
#include "base/process_memory.h"
#include "ops/caching_allocator.h"
#include "ops/host_pool.h"

namespace tessera {

namespace {

bool cpu_multiplies_bf16() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx512bf16") != 0;  // every CPU with AMX has it too
#else
  return false;
#endif
}

// The hooks name no capability number, but this answer is "8.0 or later" by definition. No GPU has
// run this line yet.
bool gpu_multiplies_bf16() { return at::detail::getCUDAHooks().supportsBFloat16RNNWithCuDNN(); }

}  // namespace

at::Device resolve_device(const std::string& name) {
  // A CUDA build without a GPU still reports an accelerator kind: only a device count tells.
  const auto accelerator = at::getAccelerator(false);
  const int count = accelerator.has_value() ? at::accelerator::deviceCount() : 0;
  if (name == "cpu" || (name == "auto" && count == 0)) return at::kCPU;
  if (name == "auto") return at::Device(*accelerator, 0);
  at::Device device(at::kCPU);
  try {
    device = at::Device(name);
  } catch (const c10::Error&) {
    throw Error(ErrorKind::kConfig, "unknown device '" + name + "'", "run.device",
                "Valid: auto, cpu, cuda, cuda:N.");
  }
  if (device.is_cpu()) return device;
  if (!accelerator.has_value() || device.type() != *accelerator || device.index() >= count) {
    throw Error(ErrorKind::kConfig,
                "device '" + name + "' is not on this machine: the installed torch sees " +
                    (count == 0 ? "no accelerator" : std::to_string(count) + " of them"),
                "run.device", "Use run.device=cpu or auto; 'tessera doctor' shows what is there.");
  }
  return at::Device(device.type(), device.has_index() ? device.index() : 0);
}

Precision resolve_precision(const std::string& name, const at::Device& device) {
  if (name == "f32") return {at::kFloat, false, "f32", "as configured"};
  if (name == "bf16") {
    const bool slow = device.is_cpu() && !cpu_multiplies_bf16();
    return {at::kBFloat16, false, "bf16",
            slow ? "as configured; this CPU has no bf16 instructions, f32 would be faster"
                 : "as configured"};
  }
  if (name == "f16") {
    return {at::kHalf, true, "f16",
            device.is_cpu()
                ? "as configured, with loss scaling; CPUs are several times slower at it"
                : "as configured, with loss scaling"};
  }
  if (name != "auto") {
    throw Error(ErrorKind::kConfig, "unknown precision '" + name + "'", "precision.compute",
                "Valid: auto, f32, bf16, f16.");
  }
  if (device.is_cpu()) {
    if (cpu_multiplies_bf16()) {
      return {at::kBFloat16, false, "bf16", "auto: this CPU multiplies bf16 natively"};
    }
    return {at::kFloat, false, "f32", "auto: this CPU has no bf16 instructions"};
  }
  if (gpu_multiplies_bf16()) {
    return {at::kBFloat16, false, "bf16", "auto: the accelerator supports bf16"};
  }
  return {at::kHalf, true, "f16", "auto: the accelerator has no bf16; loss scaling is on"};
}

namespace {

// Null where the device's allocator keeps no statistics. Not getDeviceAllocator(): that throws for
// such a device, and a line of a log is not worth a run.
c10::DeviceAllocator* allocator_of(const at::Device& device) {
  auto* const allocator = dynamic_cast<c10::DeviceAllocator*>(c10::GetAllocator(device.type()));
  return allocator != nullptr && allocator->initialized() ? allocator : nullptr;
}

constexpr auto kAllBlocks = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);

}  // namespace

std::uint64_t memory_in_use(const at::Device& device) {
  if (device.is_cpu()) return process_memory().resident_bytes;
  c10::DeviceAllocator* const allocator = allocator_of(device);
  if (allocator == nullptr) return 0;
  const auto stats = allocator->getDeviceStats(device.index());
  return static_cast<std::uint64_t>(
      std::max<std::int64_t>(stats.reserved_bytes[kAllBlocks].current, 0));
}

TensorMemory tensor_memory(const at::Device& device) {
  TensorMemory memory{.host = host_pool_statistics().in_use};
  if (device.is_cpu()) {
    const AllocatorStatistics stats = install_caching_allocator().statistics();
    memory.allocated = stats.in_use;
    memory.peak = stats.peak_in_use;
    memory.reserved = stats.in_use + stats.cached;
  } else if (c10::DeviceAllocator* const allocator = allocator_of(device)) {
    const auto stats = allocator->getDeviceStats(device.index());
    memory.allocated = stats.allocated_bytes[kAllBlocks].current;
    memory.peak = stats.allocated_bytes[kAllBlocks].peak;
    memory.reserved = stats.reserved_bytes[kAllBlocks].current;
  }
  return memory;
}

void reset_peak_memory(const at::Device& device) {
  if (device.is_cpu()) {
    install_caching_allocator().reset_peak();
  } else if (c10::DeviceAllocator* const allocator = allocator_of(device)) {
    allocator->resetPeakStats(device.index());
  }
}

}  // namespace tessera
