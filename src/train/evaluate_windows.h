// Which windows of a document give which targets. Owns: the arithmetic of a sliding window. No
// torch.
#pragma once

#include <cstdint>

namespace tessera {

// Token i + 1 is the target of input i. Window k reads the inputs [k * stride, k * stride + block)
// of a document and counts those of its targets that no window before it has: all of the first
// one's, then the last `stride` of each. So the document's first token is never a target, every
// other one exactly once, each with at least block - stride tokens before it but in the first
// window.
struct EvaluationWindow {
  std::int64_t begin = 0;    // the first input
  std::int64_t inputs = 0;   // at most the block size; fewer at the end of the document
  std::int64_t context = 0;  // inputs at the front whose targets do not count
  bool operator==(const EvaluationWindow&) const = default;
};

// block_size >= 1, 1 <= stride <= block_size.
struct WindowPlan {
  std::int64_t block_size = 0, stride = 0;

  std::int64_t count(std::int64_t tokens) const;  // 0 for fewer than two tokens
  EvaluationWindow window(std::int64_t tokens, std::int64_t index) const;
};

}  // namespace tessera
