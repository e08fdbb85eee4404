// A training step as a program: what happens to each unit, in order. Compiling is a pure function
// without tensors.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/config.h"
#include "parallel/mesh.h"

namespace tessera {

enum class Operation {
  kGather,         // begin to bring a flat unit's parameters together; its first use waits for them
  kForward,        // a unit's forward on a micro-batch; of the last unit: the objective too, except
                   // when generating
  kFree,           // give up a flat unit's gathered parameters
  kOffload,        // move a unit's kept input to the host
  kFetch,          // bring it back
  kRecompute,      // a unit's forward once more, from its kept input: its activations were not kept
  kBackward,       // a unit's backward on a micro-batch; adds to its gradients
  kReduceScatter,  // begin to add a flat unit's gradients over the shard group, each rank its shard
  kAllReduce,      // begin to add a bucket's gradients over all replicas
  kAccumulate,     // wait for a bucket's sum, and keep this replica's share of it, so that the next
                   // micro-batch can add to it and be reduced again
  kAgree,        // wait for all sums; norm, non-finite flags, loss, requests: one decision for all
  kClipAndStep,  // clip and update a flat unit's parameters, and clear its gradients
  kUpdateScale,  // adapt the loss scale of f16
};

const char* to_string(Operation operation);

struct Instruction {
  Operation operation;
  int unit = -1;         // index in the chain; -1: none
  int flat = -1;         // index in ScheduleInputs::flat_units; -1: none
  int micro_batch = -1;  // -1: none
  int bucket = -1;       // index in ScheduleInputs::buckets; -1: none
  bool operator==(const Instruction&) const = default;
};

enum class ScheduleKind { kTrain, kEvaluate, kGenerate };

// When gradients are added over ranks. The result is the same.
enum class ReduceWhen {
  kLastMicroBatch,  // once, after the last micro-batch ("no_sync" until then): full gradients stay
  kEachMicroBatch,  // after each, into the shard: least memory
  kTwoHop,          // after each inside the shard group, over replicas after the last
};

// What a unit keeps for its backward.
enum class Checkpointing {
  kNone,       // every activation
  kSelective,  // the results of matrix products and attention; the cheap rest is computed again
  kFull,       // its input; all is computed again
};

// Adjacent units of the chain whose parameters are gathered, reduced and freed together.
struct FlatUnitSpan {
  int first = 0, last = 0;  // in the chain; both included
  std::vector<int> users;   // units outside that use one of its parameters (ties)
  bool sharded = false;     // each rank of the shard group holds a part
  bool trainable = true;
  std::int64_t elements = 0;  // gathered by kGather
  bool operator==(const FlatUnitSpan&) const = default;
};

// Flat units whose reduced gradients are one contiguous buffer, and travel together. In the order
// of the chain.
using Bucket = std::vector<int>;

struct ScheduleInputs {
  std::vector<std::string> unit_names;
  std::vector<FlatUnitSpan> flat_units;  // cover the chain in order
  int micro_batches = 1;
  bool computing_copy = false;  // computation in another precision than the master weights
  bool loss_scaling = false;
  ScheduleKind kind = ScheduleKind::kTrain;
  Mesh mesh;
  std::vector<Bucket> buckets;  // as plan_buckets() makes them
  ReduceWhen reduce = ReduceWhen::kLastMicroBatch;
  int lowest_trainable = 0;  // units below need no backward

  bool reshard_after_forward = true;  // false: what forward gathered stays until its backward
  BackwardPrefetch backward_prefetch = BackwardPrefetch::kPre;  // when the next gather begins
  bool forward_prefetch = true;
  int gather_limit = 2;  // gathers under way at once, with the one that is waited for; 0: no limit
  std::int64_t live_limit = 0;  // no gather is begun early that would bring more elements than this
                                // together; 0: no limit
  std::vector<Checkpointing> checkpointing;  // by unit; empty: none
  int offload_horizon = 0;  // > 0: inputs of units with kFull go to the host, and come back so many
                            // units before their backward
};

using Schedule = std::vector<Instruction>;

Schedule compile(const ScheduleInputs& inputs);
// One line an instruction, for `tessera plan --schedule` and tests.
std::string print(const Schedule& schedule, const ScheduleInputs& inputs);
// "h.3", or "h.3 to h.5".
std::string flat_unit_name(const FlatUnitSpan& span, const std::vector<std::string>& unit_names);

// Groups flat units from the end of the chain, as backward visits them, while a group's gradients
// stay within bucket_bytes; a larger one is a group of its own, one without gradients (0) in none.
std::vector<Bucket> plan_buckets(const std::vector<std::int64_t>& gradient_bytes,
                                 std::int64_t bucket_bytes);

}  // namespace tessera
