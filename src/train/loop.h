// The training loop: steps, evaluations, checkpoints, samples, and every way to stop.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "base/signals.h"
#include "checkpoint/writer.h"
#include "data/batch_stream.h"
#include "tracking/rate_meter.h"
#include "train/evaluation.h"
#include "train/session.h"

namespace tessera {

// Called when training text samples are due, on rank 0: writes them to the log.
using SampleFunction = std::function<void(std::int64_t step)>;

class TrainLoop {
 public:
  // `writer` is there on ranks that write a part of checkpoints (Session::writes()), else null.
  // measure_gemm_rate: floating-point operations a second of one rank, that MFU is a fraction of.
  TrainLoop(Session& session, CheckpointWriter* writer, SignalRequests& signals,
            std::function<double()> measure_gemm_rate, SampleFunction sample);

  // Called when a checkpoint is durable, before its event is given, if set.
  std::function<void(const FinishedCheckpoint&)> at_checkpoint;

  // Until the run is done, stopped or early-stopped; state and checkpoints are saved then, and the
  // reason returned. Error{kNumeric} after too many values that are not finite; Error of a failed
  // save.
  EndStatus run();
  // The signal that stopped it, of whichever rank; 0: none.
  int stop_signal() const { return stop_signal_; }

  // Targets of one evaluation; 0 where there is none.
  std::int64_t evaluation_targets() const { return evaluation_ ? evaluation_->targets() : 0; }

 private:
  void train_one_step();
  std::vector<BatchContext> next_micro_batches(std::int64_t step);
  void count_skipped(const StepOutcome& outcome);
  void report_step(const StepOutcome& outcome, double lr, double seconds);
  void report_own(const StepOutcome& outcome);
  void note_memory(const char* point);
  void write_trace(std::int64_t step);
  void sample_if_due();
  void compare_weights_if_due();
  void evaluate_if_due();
  bool evaluate_now();
  void note_evaluation(const EvaluationResult& result, double seconds);
  void save_if_due();
  void save(bool best);
  void report_finished(const std::vector<FinishedCheckpoint>& finished);
  double mfu(double tokens_per_second);
  // The ranks agree on whether any of them was asked to stop; all ranks call it.
  void poll_stop();
  bool stopping() const { return stop_signal_ != 0; }
  bool stopped_early() const;
  std::int64_t interval_steps(const Interval& interval) const;

  Session& session_;
  CheckpointWriter* writer_;
  SignalRequests& signals_;
  std::function<double()> measure_gemm_rate_;
  double gemm_rate_ = 0;
  int gemm_measurements_ = 0;
  SampleFunction sample_;
  BatchStream stream_;
  GlobalBatch batch_;
  RateMeter rate_, own_rate_;  // of all ranks together, of this one
  // Bytes of tensors at points of the step under way, and at its peak.
  std::vector<std::pair<std::string, std::int64_t>> memory_;
  int stop_signal_ = 0;
  bool save_asked_ = false;
  std::unique_ptr<EvaluationOrder> evaluation_;
  std::int64_t eval_micro_rows_;  // of an evaluation, computed at a time
  std::int64_t eval_every_, save_every_, log_every_, sample_every_, check_every_;
  bool unsaved_ = false;  // the state has changed since the last save began
  bool best_pending_ = false;
};

}  // namespace tessera
