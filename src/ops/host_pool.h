// Host memory for what a training step moves away from its device: offloaded shards and
// activations. Owns: that memory, counted apart from the tensors of the device (on a CPU device
// both are the same memory, and nothing is gained: the accounting alone differs).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace tessera {

struct HostPoolStatistics {
  std::int64_t in_use = 0;  // bytes of living tensors
  std::int64_t peak_in_use = 0;
};

// (elements) f32, zero-filled, in host memory from which `device` copies fast (page-locked, where
// that is not a CPU). Error{kResource} where the system refuses.
at::Tensor host_zeros(std::int64_t elements, const at::Device& device);
// A copy of the tensor in such memory; of any type and shape.
at::Tensor host_copy(const at::Tensor& tensor);

// Of all threads.
HostPoolStatistics host_pool_statistics();

}  // namespace tessera
