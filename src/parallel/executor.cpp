#include "parallel/executor.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <utility>

#include "base/error.h"
#include "ops/host_pool.h"
#include "ops/sum_of_squares.h"

namespace tessera {
namespace {

// Places in the vector of an agreement; squares by unit, and a finding by rank, follow.
enum AgreementPlace : std::size_t { kLoss, kInterrupts, kTerminations, kSaves, kSquares };

}  // namespace

// What a unit keeps between its forward and its backward on one micro-batch.
struct Executor::Activation {
  at::Tensor input;
  at::Tensor host_input;       // instead, where it was offloaded
  torch::autograd::Edge edge;  // of the output's graph: the output itself is the next unit's input
};

struct Executor::StepState {
  // A sum over replicas under way; `lower`: in the precision of the reduction, if that is another.
  struct BucketSum {
    std::unique_ptr<Work> work;
    at::Tensor lower;
  };

  const std::vector<BatchContext>* micro_batches = nullptr;
  ScheduleKind kind = ScheduleKind::kTrain;
  ScheduleInputs inputs;
  double gradient_scale = 1.0;
  double lr = 0;
  std::function<StepRequests()> requests;
  std::vector<Activation> activations;  // by unit; of the micro-batch under way
  at::Tensor gradient;                  // of the output of the unit whose backward is next
  at::Tensor hidden;                    // output of the last forward
  at::Tensor loss_sum, correct_sum;     // over micro-batches
  double local_weight = 0;
  double gradient_divisor = 1.0;
  int scattering = -1;                 // flat unit whose sum over the shard group is under way
  std::vector<BucketSum> bucket_sums;  // by bucket
  // Sums of the gradients that units handed down, in the order of backward: they tell which rank
  // and unit was the first with a value that is not finite.
  std::vector<std::pair<int, at::Tensor>> handed_down;
  StepOutcome outcome;

  bool empty(int micro_batch) const {
    return (*micro_batches)[static_cast<std::size_t>(micro_batch)].ids.size(0) == 0;
  }
};

Executor::Executor(Chain& chain, Objective& objective, Optimizer* optimizer,
                   const MeshGroups& groups, const Options& options)
    : chain_(&chain),
      objective_(&objective),
      optimizer_(optimizer),
      groups_(groups),
      options_(options),
      plan_(plan_step(chain, groups.mesh, options.step)) {
  make_units(optimizer);
  bind_ties();
}

void Executor::make_units(Optimizer* optimizer) {
  std::vector<at::Tensor> gradients(plan_.flat_units.size());
  if (!options_.train) plan_.inputs.buckets.clear();
  for (const Bucket& bucket : plan_.inputs.buckets) {
    const auto elements = [&](int flat) {
      return plan_.flat_units[static_cast<std::size_t>(flat)].shard_gradient_elements;
    };
    std::int64_t total = 0, used = 0;
    for (const int flat : bucket) total += elements(flat);
    const at::Tensor buffer =
        options_.step.host_shards
            ? host_zeros(total, options_.device)
            : at::zeros({total}, at::TensorOptions().dtype(at::kFloat).device(options_.device));
    for (const int flat : bucket) {
      gradients[static_cast<std::size_t>(flat)] = buffer.narrow(0, used, elements(flat));
      used += elements(flat);
    }
    bucket_gradients_.push_back(buffer);
  }
  flats_of_unit_.resize(chain_->units.size());
  units_.reserve(plan_.flat_units.size());
  for (std::size_t flat = 0; flat < plan_.flat_units.size(); ++flat) {
    const FlatUnitSpan& span = plan_.flat_units[flat].span;
    std::vector<Unit*> units;
    for (int unit = span.first; unit <= span.last; ++unit) {
      units.push_back(chain_->units[static_cast<std::size_t>(unit)].get());
      flats_of_unit_[static_cast<std::size_t>(unit)].push_back(flat);
    }
    for (const int unit : span.users)
      flats_of_unit_[static_cast<std::size_t>(unit)].push_back(flat);
    units_.emplace_back(
        std::move(units),
        FlatUnit::Options{.compute_dtype = options_.compute_dtype,
                          .reduce_dtype = options_.reduce_dtype,
                          .device = options_.device,
                          .train = options_.train,
                          .shards = groups_.mesh.shard,
                          .shard = groups_.shard->rank(),
                          .persistence_threshold = options_.step.persistence_threshold,
                          .host = options_.step.host_shards},
        optimizer, gradients[flat]);
  }
}

void Executor::bind_ties() {
  for (const Tie& tie : chain_->ties) {
    for (const FlatUnit& unit : units_) {
      const at::Tensor view = unit.compute_view(tie.owner);
      if (view.defined()) *tie.user_slot = view;
    }
    if (!tie.user_slot->defined()) {
      throw Error(ErrorKind::kInternal, "no unit owns the tied parameter " + tie.owner);
    }
  }
}

void Executor::weights_changed() {
  for (FlatUnit& unit : units_) unit.parameters_changed();
}

ScheduleInputs Executor::schedule_inputs(int micro_batches, ScheduleKind kind) const {
  ScheduleInputs inputs = plan_.inputs;
  inputs.micro_batches = micro_batches;
  inputs.computing_copy = options_.compute_dtype != at::kFloat;
  inputs.loss_scaling = options_.loss_scale.enabled;
  inputs.kind = kind;
  return inputs;
}

StepOutcome Executor::train_step(const std::vector<BatchContext>& micro_batches, double lr,
                                 const std::function<StepRequests()>& requests) {
  StepState state;
  state.micro_batches = &micro_batches;
  state.lr = lr;
  state.requests = requests;
  for (const BatchContext& context : micro_batches) {
    state.local_weight += objective_->weight(context);
  }
  const at::Tensor weight = at::tensor({state.local_weight}, at::kDouble).to(options_.device);
  groups_.world->note("the weight of the global batch");
  groups_.world->all_reduce(weight, ReduceOperation::kSum)->wait();
  state.outcome.weight = weight.item<double>();
  // Without a target the loss is an empty sum: no gradient, and no division by zero.
  state.gradient_scale = options_.loss_scale.scale / std::max(state.outcome.weight, 1e-30);
  state.inputs = schedule_inputs(static_cast<int>(micro_batches.size()), ScheduleKind::kTrain);
  if (at_point) at_point("start");
  run(compile(state.inputs), state);
  if (at_point) at_point("step");
  return state.outcome;
}

EvaluationSums Executor::evaluate(const BatchContext& micro_batch) {
  StepState state;
  forward_only(ScheduleKind::kEvaluate, micro_batch, state);
  if (!state.loss_sum.defined()) return {};
  return {.loss = state.loss_sum.item<double>(),
          .correct = state.correct_sum.defined() ? state.correct_sum.item<double>() : 0.0,
          .weight = objective_->weight(micro_batch)};
}

at::Tensor Executor::hidden(const BatchContext& micro_batch) {
  StepState state;
  forward_only(ScheduleKind::kGenerate, micro_batch, state);
  return state.hidden;
}

at::Tensor Executor::logits(const at::Tensor& hidden) {
  const at::NoGradGuard no_grad;
  const std::vector<std::size_t>& flats = flats_of_unit_.back();
  for (const std::size_t flat : flats) units_[flat].begin_gather(*groups_.shard);
  for (const std::size_t flat : flats) units_[flat].wait_gathered();
  at::Tensor result = chain_->head().logits(hidden);
  for (const std::size_t flat : flats) units_[flat].free_parameters();
  return result;
}

void Executor::forward_only(ScheduleKind kind, const BatchContext& micro_batch, StepState& state) {
  const at::NoGradGuard no_grad;
  const std::vector<BatchContext> micro_batches = {micro_batch};
  state.micro_batches = &micro_batches;
  state.kind = kind;
  state.inputs = schedule_inputs(1, kind);
  run(compile(state.inputs), state);
  state.micro_batches = nullptr;
}

void Executor::run(const Schedule& schedule, StepState& state) {
  state.activations.resize(chain_->units.size());
  state.bucket_sums.resize(plan_.inputs.buckets.size());
  for (const Instruction& instruction : schedule) {
    if (trace == nullptr || !trace->on()) {
      execute(instruction, state);
      continue;
    }
    const StepTrace::Clock::time_point begin = StepTrace::Clock::now();
    execute(instruction, state);
    trace->add("compute", describe(instruction), begin, StepTrace::Clock::now());
  }
}

std::string Executor::describe(const Instruction& instruction) const {
  std::string text = to_string(instruction.operation);
  if (instruction.unit >= 0) {
    text += " " + chain_->units[static_cast<std::size_t>(instruction.unit)]->name();
  }
  if (instruction.flat >= 0)
    text += " " + units_[static_cast<std::size_t>(instruction.flat)].name();
  if (instruction.bucket >= 0) {
    text += " " + bucket_name(static_cast<std::size_t>(instruction.bucket));
  }
  return text;
}

void Executor::execute(const Instruction& instruction, StepState& state) {
  const auto flat = static_cast<std::size_t>(instruction.flat);
  switch (instruction.operation) {
    case Operation::kGather: units_[flat].begin_gather(*groups_.shard); return;
    case Operation::kFree: units_[flat].free_parameters(); return;
    case Operation::kForward: forward(instruction, state); return;
    case Operation::kOffload: offload(instruction, state); return;
    case Operation::kFetch: fetch(instruction, state); return;
    case Operation::kRecompute: recompute(instruction, state); return;
    case Operation::kBackward: backward(instruction, state); return;
    case Operation::kReduceScatter: reduce_scatter(instruction, state); return;
    case Operation::kAllReduce: begin_all_reduce(instruction, state); return;
    case Operation::kAccumulate: accumulate(instruction, state); return;
    case Operation::kAgree: agree(state); return;
    case Operation::kClipAndStep: clip_and_step(instruction, state); return;
    case Operation::kUpdateScale: update_scale(state); return;
  }
}

void Executor::wait_for_parameters(int unit) {
  for (const std::size_t flat : flats_of_unit_[static_cast<std::size_t>(unit)]) {
    units_[flat].wait_gathered();
  }
}

void Executor::require_gradients(int unit) {
  for (const std::size_t flat : flats_of_unit_[static_cast<std::size_t>(unit)]) {
    units_[flat].require_gradients();
  }
}

at::Tensor Executor::run_unit(int unit, const at::Tensor& input, const StepState& state,
                              int micro_batch) const {
  const auto index = static_cast<std::size_t>(unit);
  const BatchContext& context = (*state.micro_batches)[static_cast<std::size_t>(micro_batch)];
  if (state.kind != ScheduleKind::kTrain ||
      state.inputs.checkpointing[index] != Checkpointing::kSelective) {
    return chain_->units[index]->forward(input, context);
  }
  BatchContext selective = context;
  selective.keep = Keep::kProducts;
  return chain_->units[index]->forward(input, selective);
}

void Executor::forward(const Instruction& instruction, StepState& state) {
  const int unit = instruction.unit;
  const bool train = state.kind == ScheduleKind::kTrain;
  const bool last = static_cast<std::size_t>(unit) + 1 == chain_->units.size();
  wait_for_parameters(unit);
  if (train && last) require_gradients(unit);
  if (state.empty(instruction.micro_batch)) return;
  Activation& activation = state.activations[static_cast<std::size_t>(unit)];
  at::Tensor input;
  if (unit > 0) {
    input = std::exchange(state.hidden, {}).detach();
    if (train) input.set_requires_grad(unit > state.inputs.lowest_trainable);
  }
  {
    const bool again =
        train && state.inputs.checkpointing[static_cast<std::size_t>(unit)] == Checkpointing::kFull;
    const c10::AutoGradMode mode(train && !again && unit >= state.inputs.lowest_trainable);
    state.hidden = run_unit(unit, input, state, instruction.micro_batch);
  }
  if (train) {
    if (unit >= state.inputs.lowest_trainable) activation.input = std::move(input);
    if (!last && state.hidden.requires_grad()) {
      activation.edge = torch::autograd::impl::gradient_edge(state.hidden);
    }
  }
  if (last && state.kind != ScheduleKind::kGenerate) finish_forward(instruction, state);
}

// The loss of a micro-batch, and with it the start of its backward.
void Executor::finish_forward(const Instruction& instruction, StepState& state) {
  const LossSum sum =
      objective_->forward(chain_->head(), std::exchange(state.hidden, {}),
                          (*state.micro_batches)[static_cast<std::size_t>(instruction.micro_batch)],
                          state.gradient_scale);
  if (state.kind == ScheduleKind::kTrain) {
    state.activations.back().edge = torch::autograd::impl::gradient_edge(sum.loss);
    state.gradient = at::ones_like(sum.loss);
  }
  const auto add = [](at::Tensor& total, const at::Tensor& part) {
    if (part.defined())
      total =
          total.defined() ? total + part.detach().to(at::kDouble) : part.detach().to(at::kDouble);
  };
  add(state.loss_sum, sum.loss);
  add(state.correct_sum, sum.correct);
  if (state.kind == ScheduleKind::kTrain && at_point) at_point("forward");
}

void Executor::recompute(const Instruction& instruction, StepState& state) {
  wait_for_parameters(instruction.unit);
  if (state.empty(instruction.micro_batch)) return;
  Activation& activation = state.activations[static_cast<std::size_t>(instruction.unit)];
  const at::Tensor output =
      run_unit(instruction.unit, activation.input, state, instruction.micro_batch);
  activation.edge = torch::autograd::impl::gradient_edge(output);
}

void Executor::offload(const Instruction& instruction, StepState& state) {
  Activation& activation = state.activations[static_cast<std::size_t>(instruction.unit)];
  if (!activation.input.defined()) return;
  activation.host_input = host_copy(activation.input.detach());
  activation.input.reset();
}

void Executor::fetch(const Instruction& instruction, StepState& state) {
  Activation& activation = state.activations[static_cast<std::size_t>(instruction.unit)];
  if (!activation.host_input.defined()) return;
  activation.input = at::empty(activation.host_input.sizes(),
                               activation.host_input.options().device(options_.device));
  activation.input.copy_(activation.host_input, /*non_blocking=*/true);
  activation.input.set_requires_grad(instruction.unit > state.inputs.lowest_trainable);
  activation.host_input.reset();
}

void Executor::backward(const Instruction& instruction, StepState& state) {
  wait_for_parameters(instruction.unit);
  require_gradients(instruction.unit);
  if (state.empty(instruction.micro_batch)) return;
  const bool lowest = instruction.unit == state.inputs.lowest_trainable;
  Activation activation =
      std::exchange(state.activations[static_cast<std::size_t>(instruction.unit)], {});
  torch::autograd::Engine::get_default_engine().execute(
      {activation.edge}, {std::exchange(state.gradient, {})}, /*keep_graph=*/false,
      /*create_graph=*/false, /*accumulate_grad=*/true, {});
  if (lowest && at_point) at_point("backward");
  if (!activation.input.defined() || lowest) return;
  state.gradient = activation.input.grad();
  if (groups_.mesh.world_size() > 1) {
    const at::NoGradGuard no_grad;
    state.handed_down.emplace_back(instruction.unit, state.gradient.sum(at::kFloat));
  }
}

// One sum at a time: the full gradients of the one before are given up before the next begins.
void Executor::reduce_scatter(const Instruction& instruction, StepState& state) {
  const at::NoGradGuard no_grad;
  if (state.scattering >= 0) units_[static_cast<std::size_t>(state.scattering)].finish_reduction();
  units_[static_cast<std::size_t>(instruction.flat)].begin_reduction(*groups_.shard);
  state.scattering = instruction.flat;
}

std::string Executor::bucket_name(std::size_t bucket) const {
  const Bucket& flats = plan_.inputs.buckets[bucket];
  const std::string& first = units_[static_cast<std::size_t>(flats.front())].name();
  return flats.size() == 1 ? first
                           : first + " to " + units_[static_cast<std::size_t>(flats.back())].name();
}

void Executor::begin_all_reduce(const Instruction& instruction, StepState& state) {
  const at::NoGradGuard no_grad;
  const auto bucket = static_cast<std::size_t>(instruction.bucket);
  for (const int flat : plan_.inputs.buckets[bucket]) {
    units_[static_cast<std::size_t>(flat)].finish_reduction();
  }
  StepState::BucketSum& sum = state.bucket_sums[bucket];
  at::Tensor gradients = bucket_gradients_[bucket];
  if (options_.reduce_dtype != at::kFloat || gradients.device() != options_.device) {
    gradients = sum.lower =
        gradients.to(at::TensorOptions().dtype(options_.reduce_dtype).device(options_.device));
  }
  groups_.replica->note("gradients of " + bucket_name(bucket));
  sum.work = groups_.replica->all_reduce(gradients, ReduceOperation::kSum);
}

void Executor::finish_reductions(StepState& state) {
  const at::NoGradGuard no_grad;
  if (state.scattering >= 0) {
    units_[static_cast<std::size_t>(std::exchange(state.scattering, -1))].finish_reduction();
  }
  for (std::size_t bucket = 0; bucket < state.bucket_sums.size(); ++bucket) {
    StepState::BucketSum sum = std::exchange(state.bucket_sums[bucket], {});
    if (!sum.work) continue;
    sum.work->wait();
    if (sum.lower.defined()) bucket_gradients_[bucket].copy_(sum.lower);
  }
}

void Executor::accumulate(const Instruction& instruction, StepState& state) {
  const at::NoGradGuard no_grad;
  finish_reductions(state);
  // The sum is the same on every replica: each keeps its part of it, and the next reduction puts
  // them together again.
  bucket_gradients_[static_cast<std::size_t>(instruction.bucket)].div_(groups_.mesh.replica);
}

void Executor::agree(StepState& state) {
  finish_reductions(state);
  const at::Tensor sums = at::tensor(decide_from(state), at::kDouble).to(options_.device);
  groups_.world->note("the agreement on a step");
  groups_.world->all_reduce(sums, ReduceOperation::kSum)->wait();
  const at::Tensor host = sums.cpu();
  const double* values = host.const_data_ptr<double>();
  decide({values, values + host.numel()}, state);
}

std::vector<double> Executor::decide_from(const StepState& state) const {
  const std::size_t flats = units_.size();
  std::vector<double> values(kSquares + flats + static_cast<std::size_t>(groups_.mesh.world_size()),
                             0.0);
  values[kLoss] = state.loss_sum.defined() ? state.loss_sum.item<double>() : 0.0;
  const StepRequests requests = state.requests ? state.requests() : StepRequests{};
  values[kInterrupts] = requests.stop_signal == SIGINT ? 1 : 0;
  values[kTerminations] = requests.stop_signal == SIGTERM ? 1 : 0;
  values[kSaves] = requests.save ? 1 : 0;
  for (std::size_t flat = 0; flat < flats; ++flat) values[kSquares + flat] = local_squares(flat);
  // What this rank found by itself: 0 nothing, 1 + unit a gradient that it handed down, or a loss.
  double& finding = values[kSquares + flats + static_cast<std::size_t>(groups_.world->rank())];
  for (const auto& [unit, sum] : state.handed_down) {
    if (finding == 0 && !std::isfinite(sum.item<double>())) finding = 1 + unit;
  }
  if (!std::isfinite(values[kLoss])) finding = 1 + static_cast<double>(chain_->units.size());
  return values;
}

// Replicas hold the same gradients: each adds up its own part of the elements, so that every one is
// counted once, and the sum is the same number everywhere.
double Executor::local_squares(std::size_t flat) const {
  double squares = 0;
  for (const FlatShard& shard : units_[flat].shards()) {
    if (!shard.gradient.defined()) continue;
    const std::int64_t size = shard.gradient.numel(), ranks = groups_.mesh.replica;
    const std::int64_t begin = size * groups_.replica->rank() / ranks;
    const std::int64_t end = size * (groups_.replica->rank() + 1) / ranks;
    if (end > begin) squares += sum_of_squares(shard.gradient.narrow(0, begin, end - begin));
  }
  return squares;
}

void Executor::decide(const std::vector<double>& sums, StepState& state) {
  StepOutcome& outcome = state.outcome;
  outcome.loss = sums[kLoss] / std::max(outcome.weight, 1e-30);
  if (state.local_weight > 0 && state.loss_sum.defined()) {
    outcome.local_loss = state.loss_sum.item<double>() / state.local_weight;
  }
  outcome.requests = {.stop_signal = sums[kInterrupts] > 0     ? SIGINT
                                     : sums[kTerminations] > 0 ? SIGTERM
                                                               : 0,
                      .save = sums[kSaves] > 0};
  double squares = 0;
  int first_bad = -1;
  for (std::size_t flat = 0; flat < units_.size(); ++flat) {
    squares += sums[kSquares + flat];
    if (first_bad < 0 && !std::isfinite(sums[kSquares + flat])) first_bad = static_cast<int>(flat);
  }
  const double scaled_norm = std::sqrt(squares), scale = options_.loss_scale.scale;
  outcome.loss_scale = scale;
  outcome.grad_norm = scaled_norm / scale;
  outcome.applied = std::isfinite(outcome.loss) && std::isfinite(squares);
  if (!outcome.applied) return name_culprit(sums, first_bad, outcome);
  ++applied_steps_;
  state.gradient_divisor = scale;
  const double limit = options_.clip.max_norm;
  // The same coefficient as torch.nn.utils.clip_grad_norm_.
  if (limit > 0) state.gradient_divisor *= std::max(1.0, (outcome.grad_norm + 1e-6) / limit);
}

void Executor::name_culprit(const std::vector<double>& sums, int first_bad,
                            StepOutcome& outcome) const {
  std::string unit = first_bad < 0 ? "" : units_[static_cast<std::size_t>(first_bad)].name();
  std::string where;
  const int ranks = groups_.mesh.world_size();
  for (int rank = 0; rank < ranks && ranks > 1 && where.empty(); ++rank) {
    const double found = sums[kSquares + units_.size() + static_cast<std::size_t>(rank)];
    if (found == 0) continue;
    where = " of rank " + std::to_string(rank);
    const auto index = static_cast<std::size_t>(found) - 1;
    if (index < chain_->units.size()) unit = chain_->units[index]->name();
  }
  const std::string what = !std::isfinite(outcome.loss) ? "loss"
                           : unit.empty()               ? "gradient norm"
                                                        : "gradient of " + unit;
  outcome.not_finite = what + where;
}

void Executor::clip_and_step(const Instruction& instruction, StepState& state) {
  FlatUnit& unit = units_[static_cast<std::size_t>(instruction.flat)];
  if (state.outcome.applied) {
    if (before_update) before_update(instruction.flat);
    const at::NoGradGuard no_grad;
    for (FlatShard& shard : unit.shards()) {
      if (!shard.gradient.defined()) continue;
      optimizer_->step(
          shard,
          {.lr = state.lr, .step = applied_steps_, .gradient_divisor = state.gradient_divisor});
    }
    unit.parameters_changed();
  }
  unit.clear_gradients();
}

void Executor::update_scale(const StepState& state) {
  LossScale& scale = options_.loss_scale;
  constexpr std::int64_t kGrowthInterval = 2000;  // as torch.amp.GradScaler
  constexpr double kSmallest = 1.0, kGreatest = 16777216.0;
  if (!std::isfinite(state.outcome.loss)) return;  // it is not scaled yet where it is computed
  if (!state.outcome.applied) {
    scale.scale = std::max(scale.scale / 2, kSmallest);
    scale.good_steps = 0;
  } else if (++scale.good_steps == kGrowthInterval) {
    scale.scale = std::min(scale.scale * 2, kGreatest);
    scale.good_steps = 0;
  }
}

}  // namespace tessera
