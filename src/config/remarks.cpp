#include "config/remarks.h"

namespace tessera {
namespace {

void remark_on_wrapping(const ParallelConfig& parallel, std::vector<std::string>& remarks) {
  if (parallel.wrap != Wrap::kSize) {
    if (parallel.min_num_params != ParallelConfig::kDefaultMinNumParams) {
      remarks.push_back("parallel.min_num_params has an effect with parallel.wrap=size only.");
    }
  } else if (parallel.min_num_params == 0) {
    remarks.push_back(
        "parallel.min_num_params=0 leaves every block by itself, as parallel.wrap=transformer "
        "does.");
  }
}

void remark_on_resharding(const ParallelConfig& parallel, std::vector<std::string>& remarks) {
  const bool stays = parallel.reshard_after_forward == AutoBool::kFalse;
  if (parallel.reshard_after_forward == AutoBool::kAuto) return;
  const auto same = [&](Strategy other) {
    remarks.push_back("parallel.reshard_after_forward=" + std::string(stays ? "false" : "true") +
                      " makes parallel.strategy=" + std::string(to_string(parallel.strategy)) +
                      " the same as " + std::string(to_string(other)) + ".");
  };
  switch (parallel.strategy) {
    case Strategy::kFullShard: return stays ? same(Strategy::kShardGradOp) : void();
    case Strategy::kHybridShard: return stays ? same(Strategy::kHybridShardZero2) : void();
    case Strategy::kShardGradOp: return stays ? void() : same(Strategy::kFullShard);
    case Strategy::kHybridShardZero2: return stays ? void() : same(Strategy::kHybridShard);
    default: return;
  }
}

// Options of sharding where nothing is sharded.
void remark_on_whole_models(const ParallelConfig& parallel, std::vector<std::string>& remarks) {
  const bool whole = parallel.strategy == Strategy::kNone || parallel.strategy == Strategy::kDdp ||
                     (parallel.strategy == Strategy::kAuto && parallel.shard_degree <= 1);
  if (!whole) return;
  const ParallelConfig usual;
  std::string names;
  const auto list = [&](bool differs, const char* name) {
    if (differs) names += std::string(names.empty() ? "parallel." : ", parallel.") + name;
  };
  list(parallel.reshard_after_forward != usual.reshard_after_forward, "reshard_after_forward");
  list(parallel.param_persistence_threshold != 0, "param_persistence_threshold");
  list(parallel.max_live_parameters != 0, "max_live_parameters");
  list(parallel.limit_all_gathers != usual.limit_all_gathers, "limit_all_gathers");
  list(parallel.backward_prefetch != usual.backward_prefetch, "backward_prefetch");
  list(parallel.forward_prefetch != usual.forward_prefetch, "forward_prefetch");
  if (names.empty()) return;
  remarks.push_back("parallel.strategy=" + std::string(to_string(parallel.strategy)) +
                    " gathers nothing, so these have no effect: " + names + ".");
}

void remark_on_unused(const Config& config, std::vector<std::string>& remarks) {
  if (!config.parallel.activation_offload &&
      config.parallel.activation_offload_horizon != ParallelConfig().activation_offload_horizon) {
    remarks.push_back(
        "parallel.activation_offload_horizon has an effect with parallel.activation_offload=true "
        "only.");
  }
  const PrecisionConfig& precision = config.precision;
  if (precision.compute != Compute::kF16 && precision.compute != Compute::kAuto &&
      precision.loss_scale != PrecisionConfig().loss_scale) {
    remarks.push_back("precision.loss_scale has an effect with precision.compute=f16 only.");
  }
}

}  // namespace

std::vector<std::string> config_remarks(const Config& config) {
  const ParallelConfig& parallel = config.parallel;
  std::vector<std::string> remarks;
  remark_on_wrapping(parallel, remarks);
  remark_on_resharding(parallel, remarks);
  remark_on_whole_models(parallel, remarks);
  remark_on_unused(config, remarks);
  if (!parallel.use_orig_params) {
    remarks.push_back(
        "parallel.use_orig_params=false changes nothing: parameters keep their own names and "
        "shapes in optimizers and checkpoints.");
  }
  if (!parallel.sync_module_states) {
    remarks.push_back(
        "parallel.sync_module_states=false changes nothing: all ranks begin with the same weights, "
        "drawn by name and seed or read from the same files.");
  }
  if (parallel.state_dict_type != StateDictType::kSharded) {
    remarks.push_back(
        "parallel.state_dict_type=" +
        std::string(parallel.state_dict_type == StateDictType::kFull ? "full" : "local") +
        " changes nothing: every rank saves its part, any number of ranks loads it, and the "
        "trained model is one file.");
  }
  if (config.precision.buffer_dtype != Compute::kAuto) {
    remarks.push_back("precision.buffer_dtype changes nothing: these models have no buffers.");
  }
  return remarks;
}

}  // namespace tessera
