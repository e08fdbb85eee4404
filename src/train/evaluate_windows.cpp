#include "train/evaluate_windows.h"

#include <algorithm>

namespace tessera {

std::int64_t WindowPlan::count(std::int64_t tokens) const {
  const std::int64_t targets = tokens - 1;
  if (targets <= 0) return 0;
  const std::int64_t after_first = std::max<std::int64_t>(targets - block_size, 0);
  return 1 + (after_first + stride - 1) / stride;
}

EvaluationWindow WindowPlan::window(std::int64_t tokens, std::int64_t index) const {
  EvaluationWindow window;
  window.begin = index * stride;
  window.inputs = std::min(block_size, tokens - 1 - window.begin);
  window.context = index == 0 ? 0 : block_size - stride;
  return window;
}

}  // namespace tessera
