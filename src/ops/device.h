// What to compute on and in which precision, decided once.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

namespace tessera {

// "auto" (an accelerator if there is one), "cpu", or an accelerator's name with an optional index.
// Error{kConfig} where it is not there.
at::Device resolve_device(const std::string& name);

struct Precision {
  at::ScalarType compute = at::kFloat;
  bool loss_scaling = false;  // f16
  std::string name;           // f32 | bf16 | f16
  std::string reason;         // why, for the log
};

// "auto": on a CPU bf16 where its instructions multiply it natively, else f32; on an accelerator
// bf16 from compute capability 8.0, else f16 with loss scaling.
Precision resolve_precision(const std::string& name, const at::Device& device);

// Bytes that this process takes now where the device computes: on an accelerator what torch's
// allocator holds of its memory, with blocks that wait to be used again; on a CPU the resident
// memory. 0 where the device does not tell. Costs microseconds, and does not wait for the device.
std::uint64_t memory_in_use(const at::Device& device);

// Bytes of tensors. On a CPU: those of the caching allocator (32 KiB and more each).
struct TensorMemory {
  std::int64_t allocated = 0;  // now
  std::int64_t peak = 0;       // of `allocated`, since the start or reset_peak_memory()
  std::int64_t reserved = 0;   // with what the allocator keeps for reuse
  std::int64_t host = 0;       // in the host pool (host_pool.h), beside the rest
};
TensorMemory tensor_memory(const at::Device& device);
void reset_peak_memory(const at::Device& device);

}  // namespace tessera
