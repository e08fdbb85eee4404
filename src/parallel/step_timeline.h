// When each instruction of a step runs, at rates that the caller names. Owns: what runs beside
// what, and what waits for what, as Executor does. Not: memory and bytes (step_cost.h), drawing.
// A picture of the order and the overlap; it predicts a time as well as the rates are true.
#pragma once

#include <cstdint>
#include <vector>

#include "parallel/step_cost.h"

namespace tessera {

struct NominalRates {
  double flops = 100e12;         // a second, of one rank
  double inside_bytes = 200e9;   // a second, of one rank to the next in its node
  double across_bytes = 12.5e9;  // to one in another node
  double host_bytes = 25e9;      // between device and host
};

// What works at the same time.
enum class Lane { kCompute, kShardGroup, kReplicas, kHost };
inline constexpr std::size_t kLanes = 4;
const char* to_string(Lane lane);

struct TimelineSpan {
  Lane lane = Lane::kCompute;
  std::size_t instruction = 0;  // in StepCost::schedule
  double begin = 0, end = 0;    // seconds
};

struct Timeline {
  std::vector<TimelineSpan> spans;  // of instructions that take time
  std::vector<double> issued;       // by instruction: when the executor comes to it
  double seconds = 0;               // of the step
  double waiting = 0;               // of the compute lane, in between
};

Timeline timeline_of(const StepCostInputs& inputs, const StepCost& cost, const NominalRates& rates);

}  // namespace tessera
