// Optimizers by name.
#pragma once

#include <memory>
#include <string>

#include "config/config.h"
#include "unit/optimizer.h"

namespace tessera {

// Error{kConfig} that lists the valid names.
std::unique_ptr<Optimizer> make_optimizer(const OptimConfig& config);

}  // namespace tessera
