#include "unit/unit.h"

#include <ATen/ops/matmul.h>

#include <functional>
#include <numeric>

namespace tessera {

std::int64_t ParameterSpec::elements() const {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

at::Tensor Head::logits(const at::Tensor& hidden) const {
  return at::matmul(hidden, projection().narrow(0, 0, vocab_size()).t()).to(at::kFloat);
}

std::int64_t Chain::parameter_count() const {
  std::int64_t count = 0;
  for (const auto& unit : units) {
    for (const ParameterSpec& parameter : unit->parameters()) count += parameter.elements();
  }
  return count;
}

}  // namespace tessera
