// One training run from request to exit code.
#pragma once

#include "train/engine_api.h"

namespace tessera {

// 0 done (or early-stopped, or only planned), 130/143 stopped by a signal after saving. Throws
// Error; by then the end event is out.
int run_train(const TrainRequest& request);

}  // namespace tessera
