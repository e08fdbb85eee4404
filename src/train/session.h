// The parts of a training run, built from a config in the order in which they depend on each other.
// Owns: building and wiring. Not: the loop (loop.h), resuming (resume.h).
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <string>

#include "base/file_system.h"
#include "base/log.h"
#include "checkpoint/writer.h"
#include "data/prepare.h"
#include "data/sampler.h"
#include "model/gpt2.h"
#include "ops/device.h"
#include "optim/lr_schedule.h"
#include "parallel/executor.h"
#include "parallel/mesh_groups.h"
#include "tracking/tracker.h"
#include "train/batch_plan.h"
#include "train/engine_api.h"
#include "train/memory_plan.h"
#include "train/ranks.h"
#include "train/run_folder.h"
#include "train/trainer_state.h"

namespace tessera {

// What exists before a tensor does: enough for --dry-run.
struct RunPlan {
  TrainRequest request;
  at::Device device = at::kCPU;
  Precision precision;
  PreparedData data;
  Gpt2Shape shape;
  Chain chain;
  std::shared_ptr<const Sampler> sampler;
  BatchPlan batches;
  MeshLayout layout;
  std::int64_t steps_per_epoch = 0, total_steps = 0;
  std::optional<std::int64_t> end_of_text;

  const Config& config() const { return request.config; }
  MemoryInputs memory() const { return memory(sampler->block_size()); }
  MemoryInputs memory(std::int64_t block_size) const;
  std::int64_t tokens_per_step() const {
    return std::min(batches.global_rows, sampler->sequences()) * sampler->block_size();
  }
};

// What the run that is resumed was started with; 0: there is none.
struct RecordedSizes {
  std::int64_t global_rows = 0, block_size = 0;
};

// Prepares data (on each host once), resolves device and precision, lays out the model, and finds
// the sizes that are to be found by memory.
RunPlan make_plan(const TrainRequest& request, Ranks& ranks, FileSystem& files, Log& log,
                  const RecordedSizes& recorded);

// The plan for a person, or as one JSON line: parameters, units, memory, tokens a step.
std::string plan_text(const RunPlan& plan);
std::string plan_json(const RunPlan& plan);

// Everything that training needs. Not movable: parts refer to each other.
class Session {
 public:
  Session(RunPlan plan, Ranks& ranks, FileSystem& files, Log& log, Tracker& tracker);
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  RunPlan plan;
  Ranks& ranks;
  FileSystem& files;
  Log& log;
  Tracker& tracker;
  RunFolder folder;
  std::unique_ptr<Objective> objective;
  std::unique_ptr<Optimizer> optimizer;
  StepTrace trace;
  MeshCommunicators communicators;
  std::unique_ptr<Executor> executor;
  LrSchedule lr_schedule;
  TrainerState state;

  const Config& config() const { return plan.config(); }
  MeshGroups groups() const { return communicators.groups(); }
  // Whether this rank holds a part of the state that no rank before it holds.
  bool writes() const { return groups().replica->rank() == 0; }
  // State and, unless a checkpoint will bring them (resume.h), weights of a fresh run.
  void initialise(bool with_weights);
  NumericLayout layout() const;
  // That replicas hold the same weights and optimizer state: Error{kInternal} names rank and unit.
  void require_equal_weights();
  // Tells training data apart by content, wherever its files lie.
  std::string train_data_key() const;

 private:
  void initialise_weights();
  void read_pretrained(const Path& source);
};

}  // namespace tessera
