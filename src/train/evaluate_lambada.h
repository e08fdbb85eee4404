// Predicting the last word of a passage (LAMBADA: Paperno et al. 2016, in OpenAI's variant). Owns:
// splitting passages, their scores. Not: output (evaluate.h).
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "parallel/executor.h"
#include "tokenizer/tokenizer.h"
#include "train/evaluate_loss.h"

namespace tessera {

struct LambadaScores {
  std::int64_t passages = 0, tokens = 0;  // tokens: of the last words
  std::int64_t correct = 0;               // passages
  double nats = 0;                        // of the last words, summed
};

// The target is everything from the last space on, the space included; context and target are
// encoded apart. A passage is right when each token of the target is the likeliest one given all
// before it. Contexts longer than n_positions lose their beginning. `batch_rows` passages at once,
// padded on the right. Error{kData} that counts passages from 1 where one has no space with
// something before and after it.
LambadaScores evaluate_lambada(Executor& executor, const at::Device& device,
                               const std::vector<std::string>& passages, const Tokenizer& tokenizer,
                               std::int64_t n_positions, std::int64_t batch_rows,
                               const EvaluationProgress& progress);

}  // namespace tessera
