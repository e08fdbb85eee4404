// What a unit's work on one micro-batch takes, in figures that a model supplies from shapes alone
// and a planner adds up. Plain numbers.
#pragma once

#include <cstdint>

#include "unit/batch_context.h"

namespace tessera {

// Forward that leaves something for backward, and that backward.
struct TrainingCost {
  std::int64_t kept_bytes = 0;     // left by forward for backward, beyond its input and output
  std::int64_t forward_peak = 0;   // the most that forward holds; output and kept_bytes included
  std::int64_t backward_peak = 0;  // the most that backward holds beyond what was there before it
  double backward_flops = 0;
};

// The last unit's forward includes the objective's: it has no output, and keeps the gradient that
// its loss hands down.
struct UnitCost {
  std::int64_t output_bytes = 0;
  std::int64_t logits_bytes = 0;  // the part of TrainingCost::forward_peak that is logits
  std::int64_t lean_peak = 0;     // the most that forward holds without gradients, output included
  double forward_flops = 0;       // what the objective spends on gradients included
  TrainingCost all, products;     // by Keep

  const TrainingCost& keeping(Keep keep) const { return keep == Keep::kAll ? all : products; }
};

}  // namespace tessera
