// Learning rates as a function of the optimizer step. Owns: the formulas (docs/training.md has them
// in words). Torch-free.
#pragma once

#include <cstdint>
#include <string>

#include "config/config.h"

namespace tessera {

// What `plateau` has seen; part of a checkpoint.
struct PlateauState {
  double factor = 1.0;  // on the peak
  double best = 0;
  std::int64_t bad_evaluations = 0;
  bool has_best = false;
  bool operator==(const PlateauState&) const = default;
};

class LrSchedule {
 public:
  // total_steps: of the run, the decay length unless optim.decay_steps says another. Error{kConfig}
  // on an unknown name.
  LrSchedule(const OptimConfig& config, std::int64_t total_steps);

  // For optimizer step t = 1, 2, … With t <= warmup: peak · t / warmup.
  double at(std::int64_t step) const;

  // `plateau` only: a new evaluation loss. Returns whether the rate fell.
  bool observe(double evaluation_loss);
  const PlateauState& plateau() const { return plateau_; }
  void set_plateau(const PlateauState& state) { plateau_ = state; }
  std::int64_t warmup_steps() const { return warmup_; }
  std::int64_t decay_steps() const { return decay_steps_; }

 private:
  OptimConfig config_;
  std::int64_t decay_steps_, warmup_;
  double (*after_warmup_)(const LrSchedule&, std::int64_t step);
  PlateauState plateau_;

  friend struct LrFormulas;
};

}  // namespace tessera
