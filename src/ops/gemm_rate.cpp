#include "ops/gemm_rate.h"

#include <ATen/DeviceAccelerator.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>

#include <algorithm>
#include <chrono>
#include <limits>

namespace tessera {
namespace {

double seconds_of(const at::Tensor& a, const at::Tensor& b, at::Tensor& out) {
  const auto wait = [&] {
    if (!out.device().is_cpu()) at::accelerator::synchronizeDevice(out.device().index());
  };
  wait();
  const auto start = std::chrono::steady_clock::now();
  at::mm_out(out, a, b);
  wait();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

double measure_gemm_rate(const std::vector<GemmShape>& shapes, at::ScalarType dtype,
                         const at::Device& device, double seconds) {
  const at::NoGradGuard no_grad;
  const auto options = at::TensorOptions().dtype(dtype).device(device);
  double flops = 0, time = 0;
  for (const GemmShape& shape : shapes) {
    const at::Tensor a = at::full({shape.m, shape.k}, 0.5, options),
                     b = at::full({shape.k, shape.n}, 0.5, options);
    at::Tensor out = at::empty({shape.m, shape.n}, options);
    seconds_of(a, b, out);  // warms up caches and the library
    double best = std::numeric_limits<double>::infinity(), spent = 0;
    for (int run = 0; run < 2 || spent < seconds / static_cast<double>(shapes.size()); ++run) {
      const double took = seconds_of(a, b, out);
      best = std::min(best, took);
      spent += std::max(took, 1e-9);
    }
    flops += shape.weight * shape.flops();
    time += shape.weight * best;
  }
  return time > 0 ? flops / time : 0.0;
}

}  // namespace tessera
