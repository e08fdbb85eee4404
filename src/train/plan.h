// `tessera plan`: a request in, a prediction on stdout. Owns: which settings it is made from where
// no data is read, the choice of what fits, the layout of the output. Not: the arithmetic
// (memory_plan.h, parallel/step_cost.h), the picture (plan_picture.h).
#pragma once

#include <string>
#include <vector>

#include "train/batch_plan.h"
#include "train/engine_api.h"
#include "train/memory_plan.h"

namespace tessera {

// What is predicted, before anything is printed.
struct Prediction {
  MemoryInputs inputs;  // `fit` applied
  BatchPlan batches;
  std::string device, precision;
  std::vector<std::string> notes;  // assumptions that a reader must know
};

// Reads neither data nor weights; a tokenizer's folder at most. Error{kResource} where not even the
// least that `fit` asks for fits.
Prediction predict(const PlanRequest& request);

// Returns 0. Throws as predict(), and Error{kIo} where the picture cannot be written.
int run_plan(const PlanRequest& request);

}  // namespace tessera
