// The settings of a run as plain values. Owns: the groups, their defaults and the named model
// sizes. Not: parsing (load.h), what is said about a field (fields.h). Cheap to include: everybody
// does.
//
// A Config that load_config() returns is validated and completed: what a preset, the block size or
// another field decides is filled in (see complete() in load.h), so that a reader needs no rule of
// its own. Values that only data, a model file or the number of ranks can decide stay 0 or empty
// and say so below.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

// How often something happens: `500` (steps), `3 epochs`, `0.5 epochs`, `0` (never).
struct Interval {
  enum class Unit { kSteps, kEpochs };
  double count = 0;  // a whole number where unit is kSteps
  Unit unit = Unit::kSteps;

  bool never() const { return count == 0; }
  // In optimizer steps, at least 1; 0 for never.
  std::int64_t in_steps(double steps_per_epoch) const;
  bool operator==(const Interval&) const = default;
};

struct RunConfig {
  std::string dir;   // completed: runs/NAME under the working folder; absolute
  std::string name;  // completed: the stem of the config file
  std::int64_t seed = 1;
  std::string device = "auto";  // auto | cpu | cuda | cuda:N
  std::string notes;
  std::int64_t threads = 0;  // 0: all cores
  bool operator==(const RunConfig&) const = default;
};

// With init_from the sizes may stay 0: the model's own hold, and given ones must agree with them.
struct ModelConfig {
  std::string preset;  // a name of model_presets(), or empty: by numbers
  std::int64_t n_layer = 0, n_head = 0, n_embd = 0,
               n_positions = 0;  // completed from preset, block size
  std::int64_t vocab_size = 0;   // 0: the tokenizer's
  double dropout = 0;
  double embd_dropout = -1, attn_dropout = -1, resid_dropout = -1;  // completed: dropout
  std::int64_t pad_vocab_to = 1;  // the vocabulary is padded to a multiple of this
  std::string init_from;          // a model or checkpoint to start from: absolute path or hub:REPO
  double layer_norm_epsilon = 1e-5;
  double init_std = 0.02;
  bool tie_head = true;
  bool operator==(const ModelConfig&) const = default;
};

enum class DataFormat { kAuto, kText, kJsonl, kTsv, kCsv };
enum class Sampling { kEpochs, kWindows };
enum class LastBlock { kDrop, kKeep };

struct DataConfig {
  std::vector<std::string> train;       // completed: absolute paths and globs, or `builtin`
  std::vector<std::string> validation;  // empty: a part of train
  DataFormat format = DataFormat::kAuto;
  double train_fraction = 0;  // 0: with validation all of train, without it 0.95
  double truncate = 1;
  std::string tokenizer = "byte";  // byte | char | absolute folder | hub:REPO | bpe:N
  std::int64_t block_size = 0;     // completed: n_positions; 0 only with init_from
  std::int64_t stride = 0;         // completed: block_size
  Sampling sampling = Sampling::kEpochs;
  bool shuffle = true;
  LastBlock last_block = LastBlock::kDrop;
  bool drop_last_batch = false;
  std::string separator = "end-of-text";  // none | end-of-text | any text
  std::string text_field = "text";
  std::string text_column;  // name, or number from 0; empty: `text`, `sentence` or the first
  bool special_tokens = false;
  std::string cache_dir;  // empty: $TESSERA_CACHE, else ~/.cache/tessera
  std::int64_t prepare_threads = 0;
  bool operator==(const DataConfig&) const = default;
};

struct OptimConfig {
  std::string name = "adamw";
  double lr = 3e-4;
  double min_lr = 0;
  std::array<double, 2> betas = {0.9, 0.95};
  double eps = 1e-8;
  double weight_decay = 0.1;
  std::string schedule = "cosine";
  double warmup = 0;             // below 1: a fraction of the decay length; else steps
  std::int64_t decay_steps = 0;  // 0: to the end of training
  double wsd_decay = 0.1;
  double exponential_gamma = 0.999;  // lr(t) = lr * gamma^t, t in steps after the warm-up
  double plateau_factor = 0.5;
  std::int64_t plateau_patience = 3;
  double grad_clip = 1;  // 0: off
  bool operator==(const OptimConfig&) const = default;
};

enum class NonFinite { kSkip, kStop };

struct TrainConfig {
  std::int64_t max_steps = 0;  // total; 0: no limit
  double max_epochs = 0;       // 0: no limit
  // 0: derived, once the number of ranks is known. batch_size 0 and nothing to derive it from:
  // kDefaultBatchSize.
  std::int64_t global_batch_size = 0, batch_size = 0, gradient_accumulation = 0;
  Interval eval_every;
  std::int64_t eval_batches = 0;     // 0: all
  std::int64_t eval_batch_size = 0;  // 0: global_batch_size
  std::int64_t early_stopping_patience = 0;
  NonFinite non_finite = NonFinite::kSkip;
  std::int64_t max_skipped = 3;
  Interval sample_every;
  std::string sample_prompt;
  std::int64_t sample_tokens = 64;
  bool auto_batch = false;       // batch_size by what the device's memory holds
  bool auto_block_size = false;  // data.block_size likewise
  bool operator==(const TrainConfig&) const = default;
};
inline constexpr std::int64_t kDefaultBatchSize = 8;

// How parameters, gradients and optimizer state are spread over ranks.
enum class Strategy {
  kAuto,
  kNone,
  kDdp,
  kFullShard,
  kShardGradOp,
  kHybridShard,
  kHybridShardZero2,
};
enum class Transport { kAuto, kGloo, kShm, kMpi, kNccl };
enum class AutoBool { kAuto, kTrue, kFalse };
enum class Wrap { kTransformer, kSize, kNone };
enum class BackwardPrefetch { kPre, kPost, kNone };
enum class StateDictType { kFull, kSharded, kLocal };
enum class ReduceGradients { kAuto, kLast, kEach, kTwoHop };

// What backward computes again instead of keeping it from forward: `none`, `selective` (cheap
// operations of every block), `full` (every block), N (every N-th block).
struct ActivationCheckpointing {
  enum class Kind { kNone, kSelective, kBlocks };
  Kind kind = Kind::kNone;
  std::int64_t every = 0;  // kBlocks: 1 (`full`) or N; else 0
  bool operator==(const ActivationCheckpointing&) const = default;
};

struct ParallelConfig {
  Strategy strategy = Strategy::kAuto;
  std::int64_t shard_degree = 0;    // 0: all ranks; hybrid: the ranks of a node
  std::int64_t ranks_per_node = 0;  // 0: as launched
  AutoBool hierarchical_gather = AutoBool::kAuto;
  Transport transport = Transport::kAuto;

  Wrap wrap = Wrap::kTransformer;
  std::int64_t min_num_params = kDefaultMinNumParams;  // wrap = size only
  BackwardPrefetch backward_prefetch = BackwardPrefetch::kPre;
  bool forward_prefetch = true;
  std::int64_t limit_all_gathers = 2;                // 0: no limit
  AutoBool reshard_after_forward = AutoBool::kAuto;  // by the strategy
  std::int64_t param_persistence_threshold = 0;      // elements
  std::int64_t max_live_parameters = 0;              // elements; 0: no bound
  bool cpu_offload = false;
  bool efficient_loading = false;
  // Accepted, since configs of other trainers have them; config_remarks() says what happens anyway.
  bool use_orig_params = true, sync_module_states = true;
  StateDictType state_dict_type = StateDictType::kSharded;

  ActivationCheckpointing activation_checkpointing;
  bool activation_offload = false;
  std::int64_t activation_offload_horizon = 4;  // blocks

  double bucket_mb = 25;                            // MiB of gradients
  ReduceGradients reduce = ReduceGradients::kAuto;  // ddp: last; sharded: each; replicas: two_hop
  double timeout = 600;                             // seconds
  double heartbeat_timeout = 30;                    // seconds
  Interval check_every;

  static constexpr std::int64_t kDefaultMinNumParams = 100'000'000;
  bool operator==(const ParallelConfig&) const = default;
};

enum class Compute { kAuto, kF32, kBf16, kF16 };
enum class ReduceDtype { kF32, kBf16, kF16 };

struct PrecisionConfig {
  Compute compute = Compute::kAuto;      // completed: param_dtype, where that is given
  Compute param_dtype = Compute::kAuto;  // another name of compute
  ReduceDtype reduce_dtype = ReduceDtype::kF32;
  Compute buffer_dtype = Compute::kAuto;  // without effect: these models have no buffers
  double loss_scale = 65536;              // the first one; f16 only
  bool operator==(const PrecisionConfig&) const = default;
};

struct CheckpointConfig {
  Interval every;
  std::int64_t keep = 2;  // 0: all
  bool best = true;
  bool on_exit = true;
  bool unified_model = true;
  bool operator==(const CheckpointConfig&) const = default;
};

enum class LogRanks { kFirst, kAll };

struct LogConfig {
  Interval every = {10, Interval::Unit::kSteps};
  LogRanks ranks = LogRanks::kFirst;
  std::int64_t trace_step = 0;  // 0: none
  bool operator==(const LogConfig&) const = default;
};

struct Config {
  RunConfig run;
  ModelConfig model;
  DataConfig data;
  OptimConfig optim;
  TrainConfig train;
  ParallelConfig parallel;
  PrecisionConfig precision;
  CheckpointConfig checkpoint;
  LogConfig log;
  bool operator==(const Config&) const = default;
};

// A named model size.
struct ModelPreset {
  std::string_view name;
  std::int64_t n_embd, n_layer, n_head, n_positions;
};

std::string_view to_string(Strategy strategy);  // as it is written in a config

std::span<const ModelPreset> model_presets();
const ModelPreset* find_model_preset(std::string_view name);  // nullptr: no such name

}  // namespace tessera
