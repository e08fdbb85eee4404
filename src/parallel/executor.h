// Runs schedules over a chain of units. Owns: activations between units, gradient flow, the
// decision of a step. Not: what the batches are, learning rates, or when to save (train/).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "parallel/flat_unit.h"
#include "parallel/mesh_groups.h"
#include "parallel/schedule.h"
#include "parallel/step_plan.h"
#include "parallel/step_trace.h"
#include "unit/objective.h"

namespace tessera {

struct ClipPolicy {
  double max_norm = 0;  // 0: off
};

// Dynamic scaling of the loss, for f16: doubled after 2,000 good steps, halved after an overflow of
// a gradient. A loss that is not finite is none: it leaves the scale alone.
struct LossScale {
  double scale = 1.0;
  std::int64_t good_steps = 0;
  bool enabled = false;
};

// What a rank was asked by signals. One that any rank brings into a step, all find in its outcome.
struct StepRequests {
  int stop_signal = 0;  // SIGINT or SIGTERM; 0: none
  bool save = false;
};

struct StepOutcome {
  double loss = 0;        // weighted mean over the global batch, before the update
  double weight = 0;      // sum of target weights
  double local_loss = 0;  // of this rank's rows alone; 0 where it had none
  double grad_norm = 0;   // before clipping, loss scale removed
  double loss_scale = 1;  // the one used
  bool applied = false;   // false: a value was not finite and no parameter changed
  // What was not finite: "loss", or "gradient of UNIT"; with the rank where it began, if known.
  std::string not_finite;
  StepRequests requests;
};

struct EvaluationSums {
  double loss = 0, correct = 0, weight = 0;
};

class Executor {
 public:
  struct Options {
    at::ScalarType compute_dtype = at::kFloat;
    at::ScalarType reduce_dtype = at::kFloat;
    at::Device device = at::kCPU;
    ClipPolicy clip;
    LossScale loss_scale;
    bool train = true;
    StepPolicy step;
  };

  // All references and pointers must outlive the executor; `optimizer` is null when not training.
  Executor(Chain& chain, Objective& objective, Optimizer* optimizer, const MeshGroups& groups,
           const Options& options);

  // One optimizer step over the micro-batches of this rank: as many on every rank, some may have no
  // rows. `lr` as used.
  // `requests` is asked late, just before the ranks agree.
  StepOutcome train_step(const std::vector<BatchContext>& micro_batches, double lr,
                         const std::function<StepRequests()>& requests = {});
  // Sums over one micro-batch of this rank, without gradients. Where parameters are sharded, all
  // ranks call it equally often; one may have no rows.
  EvaluationSums evaluate(const BatchContext& micro_batch);
  // Output of the Head for one micro-batch, without gradients: (B, T, C). Logits of chosen rows:
  // logits(). All ranks call it equally often, as evaluate().
  at::Tensor hidden(const BatchContext& micro_batch);
  // The logits of some of hidden()'s rows: (N, C) -> (N, vocab_size) f32. As evaluate().
  at::Tensor logits(const at::Tensor& hidden);

  // Called with a flat unit's index just before its parameters and state are rewritten (a
  // checkpoint may be reading them).
  std::function<void(int flat)> before_update;
  // Records each instruction in the lane "compute", if set and on; outlives the executor.
  StepTrace* trace = nullptr;
  // Called at named points of a training step, if set.
  std::function<void(const char* point)> at_point;

  std::vector<FlatUnit>& units() { return units_; }
  Chain& chain() { return *chain_; }
  LossScale& loss_scale() { return options_.loss_scale; }
  std::int64_t applied_steps() const { return applied_steps_; }
  void set_applied_steps(std::int64_t steps) { applied_steps_ = steps; }
  const Mesh& mesh() const { return groups_.mesh; }
  // What a training step of so many micro-batches does.
  ScheduleInputs schedule_inputs(int micro_batches, ScheduleKind kind) const;
  // Weights changed from outside (loaded): computing copies are stale.
  void weights_changed();

 private:
  struct Activation;
  struct StepState;
  void make_units(Optimizer* optimizer);
  void bind_ties();
  void forward_only(ScheduleKind kind, const BatchContext& micro_batch, StepState& state);
  void run(const Schedule& schedule, StepState& state);
  void execute(const Instruction& instruction, StepState& state);
  std::string describe(const Instruction& instruction) const;
  void wait_for_parameters(int unit);
  void require_gradients(int unit);
  void forward(const Instruction& instruction, StepState& state);
  at::Tensor run_unit(int unit, const at::Tensor& input, const StepState& state,
                      int micro_batch) const;
  void finish_forward(const Instruction& instruction, StepState& state);
  void recompute(const Instruction& instruction, StepState& state);
  void offload(const Instruction& instruction, StepState& state);
  void fetch(const Instruction& instruction, StepState& state);
  void backward(const Instruction& instruction, StepState& state);
  void reduce_scatter(const Instruction& instruction, StepState& state);
  void begin_all_reduce(const Instruction& instruction, StepState& state);
  void accumulate(const Instruction& instruction, StepState& state);
  void finish_reductions(StepState& state);
  void agree(StepState& state);
  std::vector<double> decide_from(const StepState& state) const;
  void decide(const std::vector<double>& sums, StepState& state);
  void name_culprit(const std::vector<double>& sums, int first_bad, StepOutcome& outcome) const;
  double local_squares(std::size_t flat) const;
  void clip_and_step(const Instruction& instruction, StepState& state);
  void update_scale(const StepState& state);
  std::string bucket_name(std::size_t bucket) const;

  Chain* chain_;
  Objective* objective_;
  Optimizer* optimizer_;
  MeshGroups groups_;
  Options options_;
  StepPlan plan_;
  std::vector<FlatUnit> units_;
  std::vector<std::vector<std::size_t>> flats_of_unit_;  // that a unit of the chain reads
  std::vector<at::Tensor> bucket_gradients_;  // contiguous; the shards' gradients are its parts
  std::int64_t applied_steps_ = 0;
};

}  // namespace tessera
