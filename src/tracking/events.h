// What a training run tells the outside. Owns: the events as plain values. Not: how they are shown
// or stored (sinks), nor how the values are measured (train/). The JSON form is in docs/metrics.md;
// each struct lists those fields first, then what only people see.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace tessera {

// One data set as the start table shows it.
struct DataCount {
  std::string split;           // "train", "validation"
  std::int64_t tokens = 0;     // 0: not told
  std::int64_t sequences = 0;  // rows of block_size that one epoch holds; 0: not told
};

// A row of the start table beyond the fixed ones, or a hint at the end.
struct LabelledText {
  std::string label, text;
};

// Once, before the first step.
struct StartEvent {
  std::string run;              // its name
  std::string dir;              // its folder
  std::int64_t parameters = 0;  // tied ones counted once
  std::int64_t trainable_parameters = 0;
  std::int64_t world_size = 1;
  std::int64_t global_batch_size = 0;             // sequences
  std::optional<std::int64_t> resumed_from_step;  // empty: a fresh run

  std::string model;  // "gpt2: 12 layers, 12 heads, width 768, context 1024"
  std::string device, device_reason;
  std::string precision, precision_reason;
  std::string mesh;                  // "shard 2, replica 1"; empty for one process
  std::int64_t tokens_per_step = 0;  // over all ranks
  std::int64_t total_steps = 0;      // the step at which the run will end
  double steps_per_epoch = 0;        // 0: not told
  std::vector<DataCount> data;
  std::string checkpoint_dir;    // empty: checkpoints are off
  std::string checkpoint_every;  // "500 steps"
  std::string resumed_from;      // the checkpoint's path
  std::vector<LabelledText> more;
};

// Where the work stands, often (each step, each evaluation batch). Never stored: only a terminal
// shows it.
struct ProgressEvent {
  std::string_view activity;  // "train", "eval", …: a literal, as sinks keep it
  std::int64_t done = 0, total = 0;
};

// Every log.every-th optimizer step, with that step's own values.
struct StepEvent {
  std::int64_t step = 0;         // optimizer updates done: 1 after the first
  double epoch = 0;              // epochs of data seen
  double loss = 0;               // before the update, weighted by tokens over all ranks
  double grad_norm = 0;          // before clipping
  double lr = 0;                 // the one used
  std::int64_t tokens = 0;       // since the run's first step, over all ranks
  double tokens_per_second = 0;  // over all ranks since the last event (RateMeter)
  std::optional<double>
      mfu;             // model FLOPs utilisation, 0 to 1; empty: the device's peak is not known
  double seconds = 0;  // of this step
  std::optional<double> loss_scale;  // the one used; empty: the loss is not scaled

  std::int64_t total_steps = 0;
  std::uint64_t memory_bytes = 0;  // of this rank: the device's in use, or resident on a CPU
  // Bytes of this rank's tensors at points of the step ("start", "forward", "backward", "step"), at
  // its peak ("peak"), kept by the allocator ("reserved"), and moved to the host ("host").
  std::vector<std::pair<std::string, std::int64_t>> memory;
  std::optional<double> seconds_to_end;  // empty: not known yet
};

// A scaled gradient overflowed: its batch is left out, and the loss scale falls.
struct LossScaleEvent {
  std::int64_t step = 0;   // optimizer updates done
  double loss_scale = 0;   // from now on
  std::string not_finite;  // "gradient of h.0"
};

struct EvalEvent {
  std::int64_t step = 0;
  double loss = 0;        // mean over target tokens
  double perplexity = 0;  // exp(loss)
  std::optional<double> accuracy;

  double seconds = 0;  // that the evaluation took
};

// A checkpoint is whole and visible under `path`.
struct CheckpointEvent {
  std::int64_t step = 0;
  std::string path;
};

enum class EndStatus { kDone, kInterrupted, kFailed, kEarlyStopped };

std::string_view to_string(
    EndStatus status);  // as in the JSON form: done, interrupted, failed, early_stopped
std::optional<EndStatus> parse_end_status(std::string_view text);

// Once, also after a failure, as far as there was a run.
struct EndEvent {
  EndStatus status = EndStatus::kDone;
  std::int64_t step = 0;
  std::optional<double> loss;            // of the last step
  std::optional<double> best_eval_loss;  // empty: never evaluated
  std::string model;                     // where the model lies; empty: nowhere
  std::string error;                     // the message; only when failed
  std::optional<int> exit_code;          // only when failed or interrupted

  std::optional<std::int64_t> best_eval_step;
  double seconds = 0;  // of the whole run in this process
  // The exact next commands: {"generate", "tessera generate runs/x --prompt …"}, {"resume", …}.
  std::vector<LabelledText> commands;
};

using Event = std::variant<StartEvent, ProgressEvent, StepEvent, LossScaleEvent, EvalEvent,
                           CheckpointEvent, EndEvent>;

}  // namespace tessera
