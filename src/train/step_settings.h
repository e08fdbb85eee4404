// What the config says about a training step, as the executor wants it. Owns: the meaning of
// parallel.* and precision.* for a mesh.
#pragma once

#include <c10/core/ScalarType.h>

#include "config/config.h"
#include "parallel/step_plan.h"

namespace tessera {

StepPolicy step_policy(const ParallelConfig& config, const Mesh& mesh);

// Of gradients between ranks.
at::ScalarType reduce_dtype(const PrecisionConfig& config);

}  // namespace tessera
