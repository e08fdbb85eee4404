// Loss over a validation set, between optimizer steps.
#pragma once

#include <functional>
#include <optional>

#include "data/sampler.h"
#include "parallel/communicator.h"
#include "parallel/executor.h"

namespace tessera {

struct EvaluationResult {
  double loss = 0;      // nats, mean over targets
  double accuracy = 0;  // share of targets whose most likely token is the right one
  double targets = 0;
};

// Runs all batches of `order`: each rank its rows of each batch, at most micro_rows at a time; sums
// are weighted by real targets, so that the result is that of one process, and the same on every
// rank. `proceed` is asked before each batch with (done, total), and must answer the same on every
// rank: false ends early, with nothing.
std::optional<EvaluationResult> evaluate(
    Executor& executor, Communicator& communicator, const EvaluationOrder& order,
    std::int64_t micro_rows, const at::Device& device,
    const std::function<bool(std::int64_t, std::int64_t)>& proceed);

}  // namespace tessera
