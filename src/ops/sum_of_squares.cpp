#include "ops/sum_of_squares.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "ops/cpu_clones.h"

namespace tessera {
namespace {

TESSERA_CPU_CLONES float block_sum(const float* x, std::int64_t count) {
  constexpr std::int64_t kLanes = 32;
  float lanes[kLanes] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (std::int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] += x[i + lane] * x[i + lane];
  }
  float sum = 0;
  for (; i < count; ++i) sum += x[i] * x[i];
  for (const float lane : lanes) sum += lane;
  return sum;
}

}  // namespace

double sum_of_squares(const at::Tensor& x) {
  if (!x.device().is_cpu()) return x.to(at::kDouble).square().sum().item<double>();
  constexpr std::int64_t kBlock = 4096;
  const float* const data = x.const_data_ptr<float>();
  const std::int64_t count = x.numel(), blocks = (count + kBlock - 1) / kBlock;
  std::vector<float> sums(static_cast<std::size_t>(blocks));
  at::parallel_for(0, blocks, 16, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t block = first; block < last; ++block) {
      const std::int64_t begin = block * kBlock;
      sums[static_cast<std::size_t>(block)] =
          block_sum(data + begin, std::min(kBlock, count - begin));
    }
  });
  return std::accumulate(sums.begin(), sums.end(), 0.0);
}

}  // namespace tessera
