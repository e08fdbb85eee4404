// How fast this machine multiplies matrices, measured: what MFU is a fraction of.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace tessera {

struct GemmShape {
  std::int64_t m = 0, n = 0, k = 0;
  double weight = 1;  // how often a step runs it
  double flops() const {
    return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  }
};

// Floating-point operations per second over the shapes together, each at its best of several runs;
// about `seconds` of measuring, at least two runs each.
double measure_gemm_rate(const std::vector<GemmShape>& shapes, at::ScalarType dtype,
                         const at::Device& device, double seconds);

}  // namespace tessera
