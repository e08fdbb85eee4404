// A step as a picture: what one rank computes, sends and holds, over time.
#pragma once

#include <string>

#include "parallel/step_cost.h"
#include "parallel/step_timeline.h"

namespace tessera {

// SVG text: a lane for each that works, the device's memory below.
std::string draw_step(const StepCostInputs& inputs, const StepCost& cost, const NominalRates& rates,
                      const std::string& title);

}  // namespace tessera
