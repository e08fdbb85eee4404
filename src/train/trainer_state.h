// Everything of a run, beside tensors, that a resume needs. Owns: the text of a checkpoint's
// state.json. Equal states give equal bytes: nothing volatile is in it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/file_system.h"
#include "data/batch.h"
#include "optim/lr_schedule.h"
#include "parallel/executor.h"

namespace tessera {

// What bit-exactness rests on (docs/checkpoints.md); a resume on others says so.
struct NumericLayout {
  std::string device, precision, torch, cpu_capability;
  std::int64_t threads = 0, world_size = 1;
  std::string transport;  // how ranks talk: it decides in which order sums are made
  bool operator==(const NumericLayout&) const = default;
};

struct TrainerState {
  std::int64_t step = 0;     // optimizer updates done
  std::int64_t tokens = 0;   // of all batches so far
  SamplerPosition position;  // of the next batch
  std::int64_t global_batch_size = 0;
  std::int64_t block_size = 0;
  LossScale loss_scale;
  PlateauState plateau;
  std::optional<double> best_eval_loss;
  std::int64_t best_eval_step = 0;
  std::int64_t evaluations_without_improvement = 0;
  bool evaluation_pending =
      false;  // stopped between a step and the evaluation that was due after it
  std::int64_t last_eval_step = 0;
  std::int64_t skipped_in_a_row = 0;
  std::optional<double> last_loss;
  std::string tokenizer_hash, data_key;
  NumericLayout layout;
};

std::string to_json(const TrainerState& state);
// Error{kCorrupt} that names `path`.
TrainerState parse_trainer_state(std::string_view json, const Path& path);

// One line for a person: "threads 2 -> 4, precision f32 -> bf16"; empty when equal.
std::string describe_difference(const NumericLayout& old_layout, const NumericLayout& new_layout);

}  // namespace tessera
