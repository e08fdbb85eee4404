// From a model, a mesh and the user's wishes to what a schedule is compiled from. Owns: how units
// are wrapped into flat units and buckets. A pure function of shapes: the executor runs what it
// gives, and a planner counts it.
#pragma once

#include <cstdint>
#include <vector>

#include "config/config.h"
#include "parallel/flat_unit.h"
#include "parallel/mesh.h"
#include "parallel/schedule.h"
#include "unit/unit.h"

namespace tessera {

// What a user chooses about a step, beside the mesh.
struct StepPolicy {
  Wrap wrap = Wrap::kTransformer;
  std::int64_t min_num_params = 0;  // of kSize
  bool reshard_after_forward = true;
  BackwardPrefetch backward_prefetch = BackwardPrefetch::kPre;
  bool forward_prefetch = true;
  int gather_limit = 2;         // as ScheduleInputs
  std::int64_t live_limit = 0;  // as ScheduleInputs
  std::int64_t persistence_threshold = 0;
  bool host_shards = false;  // shards live and step in host memory
  ReduceWhen reduce = ReduceWhen::kLastMicroBatch;
  std::int64_t bucket_bytes = 25 << 20;
  Checkpointing checkpointing = Checkpointing::kNone;
  int checkpoint_every = 1;  // of the chain's inner units, each so many-th
  int offload_horizon = 0;   // as ScheduleInputs
};

// One flat unit as it will be laid out.
struct FlatUnitPlan {
  FlatUnitSpan span;
  std::vector<ParameterGroup> groups;
  std::int64_t shard_gradient_elements = 0;  // trainable elements of one rank
};

struct StepPlan {
  std::vector<FlatUnitPlan> flat_units;
  ScheduleInputs inputs;  // but micro_batches, kind, computing_copy, loss_scaling: the caller's
};

StepPlan plan_step(const Chain& chain, const Mesh& mesh, const StepPolicy& policy);

}  // namespace tessera
