#include "train/loop.h"

#include <ATen/ops/tensor.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/text_format.h"
#include "ops/device.h"
#include "train/batch_tensors.h"
#include "train/checkpoint_request.h"

namespace tessera {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

bool due(std::int64_t step, std::int64_t every) { return every > 0 && step % every == 0; }

}  // namespace

TrainLoop::TrainLoop(Session& session, CheckpointWriter* writer, SignalRequests& signals,
                     std::function<double()> measure_gemm_rate, SampleFunction sample)
    : session_(session),
      writer_(writer),
      signals_(signals),
      measure_gemm_rate_(std::move(measure_gemm_rate)),
      sample_(std::move(sample)),
      stream_(session.plan.sampler, session.plan.batches.global_rows, session.state.position),
      eval_micro_rows_(session.config().train.eval_batch_size > 0
                           ? session.config().train.eval_batch_size
                           : session.plan.batches.micro_rows),
      eval_every_(interval_steps(session.config().train.eval_every)),
      save_every_(interval_steps(session.config().checkpoint.every)),
      log_every_(interval_steps(session.config().log.every)),
      sample_every_(interval_steps(session.config().train.sample_every)),
      check_every_(interval_steps(session.config().parallel.check_every)) {
  const TrainConfig& train = session.config().train;
  if (eval_every_ > 0) {
    // Batches of an evaluation are global ones: what is evaluated does not depend on how batches
    // are cut.
    const std::int64_t rows =
        train.eval_batch_size > 0 ? train.eval_batch_size : session.plan.batches.global_rows;
    evaluation_ = std::make_unique<EvaluationOrder>(
        session.plan.data.validation, session.plan.sampler->block_size(), rows, train.eval_batches);
  }
  if (writer_ != nullptr) {
    session.executor->before_update = [this](int flat) { writer_->before_update(flat); };
  }
  session.executor->at_point = [this](const char* point) { note_memory(point); };
}

EndStatus TrainLoop::run() {
  TrainerState& state = session_.state;
  rate_.restart();
  own_rate_.restart();
  session_.require_equal_weights();
  poll_stop();
  // A stop can come between a step and the evaluation that was due after it: the resume makes up
  // for it.
  state.evaluation_pending = state.evaluation_pending && evaluation_ != nullptr;
  evaluate_if_due();
  while (state.step < session_.plan.total_steps && !stopping() && !stopped_early()) {
    train_one_step();
    if (writer_ != nullptr) report_finished(writer_->poll());
  }
  const bool at_end = state.step >= session_.plan.total_steps;
  if (at_end && evaluation_ && !stopping() && state.last_eval_step != state.step) evaluate_now();
  if (session_.config().checkpoint.on_exit && (unsaved_ || best_pending_) && state.step > 0) {
    save(best_pending_);
  }
  if (writer_ != nullptr) report_finished(writer_->finish());
  const bool evaluated = evaluation_ == nullptr || state.last_eval_step == state.step;
  if (stopping() && !(at_end && evaluated)) return EndStatus::kInterrupted;
  return stopped_early() && !at_end ? EndStatus::kEarlyStopped : EndStatus::kDone;
}

void TrainLoop::train_one_step() {
  TrainerState& state = session_.state;
  const Clock::time_point start = Clock::now();
  const std::int64_t step = state.step + 1;
  session_.ranks.set_phase("step " + std::to_string(step));
  const double lr = session_.lr_schedule.at(step);
  const bool traced = step == session_.config().log.trace_step;
  if (traced) session_.trace.start();
  const StepOutcome outcome = session_.executor->train_step(next_micro_batches(step), lr, [this] {
    return StepRequests{.stop_signal = signals_.stop_signal(),
                        .save = signals_.take_save_request()};
  });
  if (traced) write_trace(step);
  stop_signal_ = outcome.requests.stop_signal;
  save_asked_ = save_asked_ || outcome.requests.save;
  state.position = batch_.position_after;
  state.loss_scale = session_.executor->loss_scale();
  const std::int64_t tokens = batch_.rows * batch_.block_size;
  state.tokens += tokens;
  rate_.add_tokens(tokens);
  if (!outcome.applied) return count_skipped(outcome);

  state.step = step;
  unsaved_ = true;
  state.skipped_in_a_row = 0;
  state.last_loss = outcome.loss;
  // The last step's evaluation comes before its save, so that one checkpoint holds both.
  state.evaluation_pending =
      evaluation_ != nullptr && (due(step, eval_every_) || step == session_.plan.total_steps);
  session_.tracker.emit(ProgressEvent{"train", step, session_.plan.total_steps});
  if (due(step, log_every_)) report_step(outcome, lr, seconds_since(start));
  compare_weights_if_due();
  evaluate_if_due();
  sample_if_due();
  save_if_due();
}

void TrainLoop::write_trace(std::int64_t step) {
  session_.trace.stop();
  const Path folder = session_.folder.dir() / "trace";
  const Path path = folder / ("step_" + std::to_string(step) + ".rank_" +
                              std::to_string(session_.ranks.rank()) + ".json");
  const std::string text = session_.trace.json(session_.ranks.rank());
  session_.files.create_directories(folder);
  const auto file = session_.files.create(path);
  file->write(std::as_bytes(std::span(text.data(), text.size())));
  file->close();
  session_.log.info("trace of step " + std::to_string(step) + ": " + path.string());
}

std::vector<BatchContext> TrainLoop::next_micro_batches(std::int64_t step) {
  stream_.next(batch_);
  const BatchPlan& plan = session_.plan.batches;
  const int ranks = session_.ranks.world_size();
  const std::int64_t parts = batch_.rows == plan.global_rows
                                 ? plan.micro_batches
                                 : micro_batches_for(batch_.rows, plan.micro_rows, ranks);
  const auto rows = split_rows(batch_.rows, parts, session_.ranks.rank(), ranks);
  own_rate_.add_tokens((rows.back().end - rows.front().begin) * batch_.block_size);
  return make_micro_batches(batch_, rows, session_.plan.device, Mode::kTrain,
                            static_cast<std::uint64_t>(session_.config().run.seed), step);
}

void TrainLoop::sample_if_due() {
  if (!due(session_.state.step, sample_every_) || !sample_ || stopping()) return;
  const Clock::time_point begin = Clock::now();
  sample_(session_.state.step);
  rate_.exclude(seconds_since(begin));
}

void TrainLoop::compare_weights_if_due() {
  if (due(session_.state.step, check_every_)) session_.require_equal_weights();
}

void TrainLoop::count_skipped(const StepOutcome& outcome) {
  TrainerState& state = session_.state;
  // Scaled gradients overflow: that is how the scale is found.
  if (state.loss_scale.scale < outcome.loss_scale) {
    session_.tracker.emit(LossScaleEvent{.step = state.step,
                                         .loss_scale = state.loss_scale.scale,
                                         .not_finite = outcome.not_finite});
    return;
  }
  const std::string what =
      "step " + std::to_string(state.step + 1) + ": the " + outcome.not_finite + " is not finite";
  ++state.skipped_in_a_row;
  const TrainConfig& train = session_.config().train;
  const std::int64_t allowed = train.non_finite == NonFinite::kSkip ? train.max_skipped : 0;
  if (state.skipped_in_a_row > allowed) {
    throw Error(
        ErrorKind::kNumeric,
        what +
            (allowed > 0 ? ", after " + std::to_string(allowed) + " skipped batches in a row" : ""),
        "epoch " + std::to_string(state.position.epoch),
        "Lower optim.lr, lengthen optim.warmup, set optim.grad_clip, or try precision.compute=f32. "
        "The same command resumes from the last checkpoint, if there is one.");
  }
  session_.log.warning(what + "; the batch is skipped (" + std::to_string(state.skipped_in_a_row) +
                       " of at most " + std::to_string(allowed) + " in a row)");
}

// Micro-batches come one after the other: the last one's points stay.
void TrainLoop::note_memory(const char* point) {
  const at::Device& device = session_.plan.device;
  if (point == std::string_view("start")) {
    memory_.clear();
    reset_peak_memory(device);
  }
  const TensorMemory now = tensor_memory(device);
  const auto set = [this](std::string_view name, std::int64_t bytes) {
    for (auto& [known, value] : memory_) {
      if (known == name) value = bytes;
      if (known == name) return;
    }
    memory_.emplace_back(name, bytes);
  };
  set(point, now.allocated);
  if (point != std::string_view("step")) return;
  set("peak", now.peak);
  set("reserved", now.reserved);
  set("host", now.host);
}

// With log.ranks=all: this rank's own loss and speed.
void TrainLoop::report_own(const StepOutcome& outcome) {
  if (session_.config().log.ranks != LogRanks::kAll || session_.ranks.alone()) return;
  // The log of other ranks begins its lines with their rank.
  session_.log.info(
      (session_.ranks.first() ? "[rank 0] step " : "step ") + std::to_string(session_.state.step) +
      " | loss " + format_fixed(outcome.local_loss, 4) + " | " + format_fixed(own_rate_.take(), 0) +
      " tok/s | mem " + format_bytes(memory_in_use(session_.plan.device)));
}

void TrainLoop::report_step(const StepOutcome& outcome, double lr, double seconds) {
  report_own(outcome);
  if (!session_.ranks.first()) return;
  const TrainerState& state = session_.state;
  StepEvent event;
  event.step = state.step;
  event.epoch = session_.plan.sampler->epochs_done(state.position);
  event.loss = outcome.loss;
  event.grad_norm = outcome.grad_norm;
  event.lr = lr;
  event.tokens = state.tokens;
  event.tokens_per_second = rate_.take();
  event.mfu = mfu(event.tokens_per_second);
  event.seconds = seconds;
  if (state.loss_scale.enabled) event.loss_scale = outcome.loss_scale;
  event.total_steps = session_.plan.total_steps;
  event.memory_bytes = memory_in_use(session_.plan.device);
  event.memory = memory_;
  if (event.tokens_per_second > 0) {
    event.seconds_to_end = static_cast<double>(session_.plan.total_steps - state.step) *
                           static_cast<double>(session_.plan.tokens_per_step()) /
                           event.tokens_per_second;
  }
  session_.tracker.emit(event);
}

double TrainLoop::mfu(double tokens_per_second) {
  const double flops = tokens_per_second * flops_per_token(session_.plan.shape, batch_.block_size) /
                       session_.ranks.world_size();
  // The best of a few measurements counts, for something else may have run during one. Nothing
  // computes faster than the machine: a step that seems to shows that all of them were disturbed.
  constexpr int kMeasurements = 3;
  if (gemm_measurements_ < kMeasurements || flops > gemm_rate_) {
    ++gemm_measurements_;
    const Clock::time_point begin = Clock::now();
    gemm_rate_ = std::max(gemm_rate_, measure_gemm_rate_());
    rate_.exclude(seconds_since(begin));
  }
  return gemm_rate_ > 0 ? flops / gemm_rate_ : 0.0;
}

void TrainLoop::evaluate_if_due() {
  if (session_.state.evaluation_pending && !stopping()) evaluate_now();
}

bool TrainLoop::evaluate_now() {
  const Clock::time_point begin = Clock::now();
  session_.ranks.set_phase("the evaluation after step " + std::to_string(session_.state.step));
  const auto result =
      evaluate(*session_.executor, *session_.groups().world, *evaluation_, eval_micro_rows_,
               session_.plan.device, [this](std::int64_t done, std::int64_t total) {
                 session_.tracker.emit(ProgressEvent{"eval", done, total});
                 poll_stop();
                 return !stopping();
               });
  const double seconds = seconds_since(begin);
  rate_.exclude(seconds);
  own_rate_.exclude(seconds);
  if (!result.has_value()) return false;
  note_evaluation(*result, seconds);
  return true;
}

void TrainLoop::note_evaluation(const EvaluationResult& result, double seconds) {
  TrainerState& state = session_.state;
  state.evaluation_pending = false;
  state.last_eval_step = state.step;
  unsaved_ = true;
  session_.tracker.emit(EvalEvent{.step = state.step,
                                  .loss = result.loss,
                                  .perplexity = std::exp(result.loss),
                                  .accuracy = result.accuracy,
                                  .seconds = seconds});
  if (session_.lr_schedule.observe(result.loss)) {
    session_.log.info("the evaluation loss stays: the learning rate falls to " +
                      std::to_string(session_.lr_schedule.at(state.step + 1)));
  }
  state.plateau = session_.lr_schedule.plateau();
  if (std::isfinite(result.loss) &&
      (!state.best_eval_loss.has_value() || result.loss < *state.best_eval_loss)) {
    state.best_eval_loss = result.loss;
    state.best_eval_step = state.step;
    state.evaluations_without_improvement = 0;
    best_pending_ = session_.config().checkpoint.best;
  } else {
    ++state.evaluations_without_improvement;
  }
}

void TrainLoop::save_if_due() {
  const bool asked = std::exchange(save_asked_, false);
  if (due(session_.state.step, save_every_) || asked || best_pending_) save(best_pending_);
}

void TrainLoop::save(bool best) {
  // Replicas hold the same state: the first of them writes it.
  if (writer_ != nullptr) {
    CheckpointRequest request = make_checkpoint_request(session_);
    if (best) request.best_loss = session_.state.best_eval_loss;
    writer_->start(std::move(request));
  }
  unsaved_ = false;
  best_pending_ = false;
}

void TrainLoop::report_finished(const std::vector<FinishedCheckpoint>& finished) {
  for (const FinishedCheckpoint& checkpoint : finished) {
    if (at_checkpoint) at_checkpoint(checkpoint);
    session_.tracker.emit(
        CheckpointEvent{.step = checkpoint.step, .path = checkpoint.path.string()});
  }
}

void TrainLoop::poll_stop() {
  const at::Tensor signal =
      at::tensor({static_cast<double>(std::max(signals_.stop_signal(), stop_signal_))}, at::kDouble)
          .to(session_.plan.device);
  Communicator& world = *session_.groups().world;
  world.note("whether to stop");
  world.all_reduce(signal, ReduceOperation::kMax)->wait();
  stop_signal_ = static_cast<int>(signal.item<double>());
}

bool TrainLoop::stopped_early() const {
  const std::int64_t patience = session_.config().train.early_stopping_patience;
  return patience > 0 && session_.state.evaluations_without_improvement >= patience;
}

std::int64_t TrainLoop::interval_steps(const Interval& interval) const {
  return interval.in_steps(static_cast<double>(session_.plan.steps_per_epoch));
}

}  // namespace tessera
