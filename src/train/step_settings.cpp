#include "train/step_settings.h"

namespace tessera {
namespace {

bool reshards(const ParallelConfig& config) {
  switch (config.reshard_after_forward) {
    case AutoBool::kTrue: return true;
    case AutoBool::kFalse: return false;
    case AutoBool::kAuto: break;
  }
  return config.strategy != Strategy::kShardGradOp &&
         config.strategy != Strategy::kHybridShardZero2;
}

// Shards are there to save memory, and full gradients would stay between micro-batches; between
// replicas nothing is saved by adding early.
ReduceWhen reduces(ReduceGradients reduce, const Mesh& mesh) {
  switch (reduce) {
    case ReduceGradients::kLast: return ReduceWhen::kLastMicroBatch;
    case ReduceGradients::kEach: return ReduceWhen::kEachMicroBatch;
    case ReduceGradients::kTwoHop: return ReduceWhen::kTwoHop;
    case ReduceGradients::kAuto: break;
  }
  if (mesh.shard == 1) return ReduceWhen::kLastMicroBatch;
  return mesh.replica > 1 ? ReduceWhen::kTwoHop : ReduceWhen::kEachMicroBatch;
}

Checkpointing checkpointing(const ActivationCheckpointing& config) {
  switch (config.kind) {
    case ActivationCheckpointing::Kind::kNone: return Checkpointing::kNone;
    case ActivationCheckpointing::Kind::kSelective: return Checkpointing::kSelective;
    case ActivationCheckpointing::Kind::kBlocks: return Checkpointing::kFull;
  }
  return Checkpointing::kNone;
}

}  // namespace

StepPolicy step_policy(const ParallelConfig& config, const Mesh& mesh) {
  const ActivationCheckpointing& again = config.activation_checkpointing;
  return {.wrap = config.wrap,
          .min_num_params = config.min_num_params,
          .reshard_after_forward = reshards(config),
          .backward_prefetch = config.backward_prefetch,
          .forward_prefetch = config.forward_prefetch,
          .gather_limit = static_cast<int>(config.limit_all_gathers),
          .live_limit = config.max_live_parameters,
          .persistence_threshold = config.param_persistence_threshold,
          .host_shards = config.cpu_offload,
          .reduce = reduces(config.reduce, mesh),
          .bucket_bytes = static_cast<std::int64_t>(config.bucket_mb * 1024 * 1024),
          .checkpointing = checkpointing(again),
          .checkpoint_every = again.kind == ActivationCheckpointing::Kind::kBlocks
                                  ? static_cast<int>(again.every)
                                  : 1,
          .offload_horizon =
              config.activation_offload ? static_cast<int>(config.activation_offload_horizon) : 0};
}

at::ScalarType reduce_dtype(const PrecisionConfig& config) {
  switch (config.reduce_dtype) {
    case ReduceDtype::kF32: return at::kFloat;
    case ReduceDtype::kBf16: return at::kBFloat16;
    case ReduceDtype::kF16: return at::kHalf;
  }
  return at::kFloat;
}

}  // namespace tessera
