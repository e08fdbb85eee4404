// `tessera evaluate`: a request in, scores on stdout. Owns: the choice of the task, progress, the
// layout of the output. Not: the computation (evaluate_loss.h, evaluate_lambada.h).
#pragma once

#include "train/engine_api.h"

namespace tessera {

// Prints to stdout: with `json` one object, else one line a value. docs/evaluation.md defines the
// values. stderr gets what was loaded and the progress. Returns 0. Throws as load_model() does;
// Error{kUsage} for a block size beyond the model's context or a stride beyond the block size;
// Error{kData} for text that cannot be used; Error{kNumeric} where the loss is not finite.
int run_evaluate(const EvaluateRequest& request);

}  // namespace tessera
