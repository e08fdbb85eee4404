#include "ops/host_pool.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <numeric>
#include <string>

#include "base/error.h"

namespace tessera {
namespace {

struct Counters {
  std::atomic<std::int64_t> in_use = 0, peak = 0;

  void add(std::int64_t bytes) {
    const std::int64_t now = in_use.fetch_add(bytes) + bytes;
    std::int64_t before = peak.load();
    while (before < now && !peak.compare_exchange_weak(before, now)) {
    }
  }
};

Counters& counters() {
  static Counters all;  // of the process, as the memory is
  return all;
}

// Counted as long as a tensor holds it.
at::Tensor counted(const at::Tensor& pinned, std::int64_t bytes) {
  return at::from_blob(
      pinned.data_ptr(), pinned.sizes(), [pinned, bytes](void*) { counters().in_use -= bytes; },
      at::TensorOptions().dtype(pinned.scalar_type()));
}

at::Tensor host_empty(at::IntArrayRef sizes, const at::TensorOptions& options,
                      const at::Device& device) {
  const std::int64_t elements =
      std::accumulate(sizes.begin(), sizes.end(), std::int64_t{1}, std::multiplies<>());
  const auto bytes = elements * static_cast<std::int64_t>(options.dtype().itemsize());
  counters().add(bytes);
  if (!device.is_cpu()) {
    return counted(at::empty(sizes, options.device(at::kCPU).pinned_memory(true)), bytes);
  }
  constexpr std::size_t kAlignment = 64;
  const std::size_t room = (static_cast<std::size_t>(bytes) / kAlignment + 1) * kAlignment;
  void* memory = std::aligned_alloc(kAlignment, room);
  if (memory == nullptr) {
    counters().in_use -= bytes;
    throw Error(
        ErrorKind::kResource,
        "the system has no " + std::to_string(bytes) + " bytes of host memory to offload to",
        "offloading", "Offload less, or use a machine with more memory.");
  }
  return at::from_blob(
      memory, sizes,
      [bytes](void* given) {
        counters().in_use -= bytes;
        std::free(given);
      },
      options.device(at::kCPU));
}

}  // namespace

at::Tensor host_zeros(std::int64_t elements, const at::Device& device) {
  return host_empty({elements}, at::TensorOptions().dtype(at::kFloat), device).zero_();
}

at::Tensor host_copy(const at::Tensor& tensor) {
  at::Tensor host =
      host_empty(tensor.sizes(), at::TensorOptions().dtype(tensor.scalar_type()), tensor.device());
  host.copy_(tensor, /*non_blocking=*/true);
  return host;
}

HostPoolStatistics host_pool_statistics() {
  return {.in_use = counters().in_use.load(), .peak_in_use = counters().peak.load()};
}

}  // namespace tessera
