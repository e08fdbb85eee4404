// Loss and accuracy of a model over documents with a sliding window. Owns: batches of windows and
// the sums. Not: windows (evaluate_windows.h), documents (evaluate_text.h), output (evaluate.h).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>

#include "parallel/executor.h"
#include "train/evaluate_text.h"
#include "train/evaluate_windows.h"

namespace tessera {

// Told after each batch; loss: the mean over the targets so far.
using EvaluationProgress = std::function<void(std::int64_t done, std::int64_t total, double loss)>;

// Sums over all targets: loss in nats, correct, weight (the number of targets). Windows never
// reach into another document. Memory: one batch of batch_rows windows.
EvaluationSums evaluate_documents(Executor& executor, const at::Device& device,
                                  const EvaluationText& text, const WindowPlan& plan,
                                  std::int64_t batch_rows, const EvaluationProgress& progress);

}  // namespace tessera
