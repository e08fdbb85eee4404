#include "config/complete.h"

#include <cmath>

#include "config/checks.h"
#include "config/convert.h"
#include "config/format.h"

namespace tessera {
namespace {

Origin& origin_of(ResolvedConfig& resolved, std::string_view key) {
  return resolved.origins[static_cast<std::size_t>(find_field(key) - fields().data())];
}

class Completion {
 public:
  explicit Completion(ResolvedConfig& resolved) : resolved_(resolved) {}

  template <class T>
  void derive(std::string_view key, T& target, const T& value, std::string_view from) {
    target = value;
    const bool print = from == "model.preset" || key == "run.name" || key == "data.train";
    origin_of(resolved_, key) = {Origin::Kind::kDerived, std::string(from), !print};
  }

  void size(std::string_view key, std::int64_t& target, std::int64_t value, std::string_view from) {
    if (target == 0 && value != 0) derive(key, target, value, from);
  }

 private:
  ResolvedConfig& resolved_;
};

// Mistakes with the place of the setting that is at fault.
class Check {
 public:
  Check(const ResolvedConfig& resolved, Mistakes& mistakes)
      : resolved_(resolved), mistakes_(mistakes) {}

  // By the user, not by what follows from other settings.
  bool given(std::string_view key) const { return origin_of(key).kind == Origin::Kind::kGiven; }

  void wrong(std::string_view key, std::string_view message, std::string_view hint = {}) {
    const Origin& origin = origin_of(key);
    Place place;
    if (origin.kind == Origin::Kind::kGiven) place.file = origin.where;
    if (origin.kind == Origin::Kind::kDerived) place.file = "from " + origin.where;
    mistakes_.add(place, key, message, hint);
  }

 private:
  const Origin& origin_of(std::string_view key) const {
    return resolved_.origins[static_cast<std::size_t>(find_field(key) - fields().data())];
  }

  const ResolvedConfig& resolved_;
  Mistakes& mistakes_;
};

std::string text(std::int64_t value) { return std::to_string(value); }

void check_model(const Config& config, Check& check) {
  const ModelConfig& model = config.model;
  if (model.init_from.empty()) {
    if (model.n_layer == 0 || model.n_head == 0 || model.n_embd == 0) {
      std::string missing;
      for (const auto& [name, value] : {std::pair{"n_layer", model.n_layer},
                                        {"n_head", model.n_head},
                                        {"n_embd", model.n_embd}}) {
        if (value == 0) missing += (missing.empty() ? "" : ", ") + std::string(name);
      }
      check.wrong("model.preset", "the model's size is not given: " + missing + " missing",
                  "Set model.preset (tiny, char, gpt2, …), the numbers, or model.init_from.");
    }
    if (model.n_positions == 0) {
      check.wrong("model.n_positions", "the context length is not given",
                  "Set model.n_positions, model.preset or data.block_size.");
    }
  }
  if (model.n_head != 0 && model.n_embd % model.n_head != 0) {
    check.wrong("model.n_embd",
                text(model.n_embd) + " is not divisible by model.n_head = " + text(model.n_head));
  }
  for (const std::string_view key :
       {"model.embd_dropout", "model.attn_dropout", "model.resid_dropout"}) {
    if (std::get<double>(find_field(key)->get(config)) < 0) {
      check.wrong(key, "must be -1 (model.dropout) or at least 0");
    }
  }
}

void check_data(const Config& config, Check& check) {
  const DataConfig& data = config.data;
  if (config.model.n_positions != 0 && data.block_size > config.model.n_positions) {
    check.wrong("data.block_size", text(data.block_size) +
                                       " is longer than the model's context, model.n_positions = " +
                                       text(config.model.n_positions));
  }
  if (data.block_size != 0 && data.stride > data.block_size) {
    check.wrong("data.stride", text(data.stride) +
                                   " would leave out text between blocks of data.block_size = " +
                                   text(data.block_size));
  }
  for (const auto& [key, list] :
       {std::pair<std::string_view, const std::vector<std::string>&>{"data.train", data.train},
        {"data.validation", data.validation}}) {
    for (const std::string& path : list) {
      if (is_corpus_name(path) && list.size() > 1) {
        check.wrong(key, "builtin stands alone, not in a list with files");
        break;
      }
    }
  }
  const long bpe = bpe_vocabulary(data.tokenizer);
  if (config.model.vocab_size != 0 && config.model.vocab_size < bpe) {
    check.wrong("model.vocab_size",
                text(config.model.vocab_size) +
                    " is smaller than the vocabulary of data.tokenizer = " + data.tokenizer);
  }
}

void check_optim(const Config& config, Check& check) {
  const OptimConfig& optim = config.optim;
  if (optim.min_lr > optim.lr) {
    check.wrong("optim.min_lr", format_number(optim.min_lr) +
                                    " is larger than optim.lr = " + format_number(optim.lr));
  }
  if (optim.warmup >= 1 && optim.warmup != std::rint(optim.warmup)) {
    check.wrong("optim.warmup", "must be a whole number of steps, or a fraction below 1, not " +
                                    format_number(optim.warmup));
  }
  if (optim.decay_steps > 0 && optim.warmup > static_cast<double>(optim.decay_steps)) {
    check.wrong("optim.warmup", format_number(optim.warmup) +
                                    " is longer than optim.decay_steps = " +
                                    text(optim.decay_steps) + ", which includes it");
  }
  if (optim.schedule == "plateau" && config.train.eval_every.never()) {
    check.wrong("optim.schedule", "plateau follows the evaluation loss, and nothing is evaluated",
                "Set train.eval_every.");
  }
}

void check_train(const Config& config, Check& check) {
  const TrainConfig& train = config.train;
  if (train.max_steps == 0 && train.max_epochs == 0) {
    check.wrong("train.max_steps", "no end of training is given",
                "Set train.max_steps or train.max_epochs.");
  }
  if (train.early_stopping_patience > 0 && train.eval_every.never()) {
    check.wrong("train.early_stopping_patience", "nothing is evaluated", "Set train.eval_every.");
  }
  if (train.auto_batch && train.batch_size > 0) {
    check.wrong("train.auto_batch", "train.batch_size is given, which it would find",
                "Leave one of them out.");
  }
  if (train.auto_batch && train.global_batch_size > 0 && train.gradient_accumulation > 0) {
    check.wrong("train.auto_batch",
                "train.global_batch_size and train.gradient_accumulation are given, and leave "
                "nothing to find",
                "Leave one of the three out.");
  }
  if (train.auto_block_size && check.given("data.block_size")) {
    check.wrong(
        "train.auto_block_size", "data.block_size is given, which it would find",
        "Leave one of them out (~data.block_size on the command line); model.n_positions is "
        "the most that it takes.");
  }
  const std::int64_t global = train.global_batch_size;
  if (global == 0) return;
  if (train.batch_size > global) {
    check.wrong(
        "train.batch_size",
        text(train.batch_size) + " is larger than train.global_batch_size = " + text(global));
  } else if (train.gradient_accumulation > global) {
    check.wrong("train.gradient_accumulation",
                text(train.gradient_accumulation) +
                    " micro-batches are more than train.global_batch_size = " + text(global) +
                    " sequences");
  } else if (train.batch_size > 0 && train.gradient_accumulation > 0 &&
             global % (train.batch_size * train.gradient_accumulation) != 0) {
    check.wrong("train.global_batch_size",
                text(global) + " is no multiple of batch_size × gradient_accumulation = " +
                    text(train.batch_size) + " × " + text(train.gradient_accumulation),
                "Leave one of the three out; it is derived.");
  }
}

// Strategies under which groups of ranks each hold a copy of the model, cut over the group.
bool may_have_replicas_of_shards(const ParallelConfig& parallel) {
  switch (parallel.strategy) {
    case Strategy::kNone:
    case Strategy::kDdp: return false;
    case Strategy::kHybridShard:
    case Strategy::kHybridShardZero2: return true;
    default: return parallel.shard_degree > 1;
  }
}

void check_parallel(const Config& config, Check& check) {
  const ParallelConfig& parallel = config.parallel;
  const bool whole = parallel.strategy == Strategy::kNone || parallel.strategy == Strategy::kDdp;
  const std::string strategy = "parallel.strategy=" + std::string(to_string(parallel.strategy));
  if (whole && parallel.shard_degree > 1) {
    check.wrong("parallel.shard_degree",
                text(parallel.shard_degree) + " ranks cannot share a model that " + strategy +
                    " keeps whole on each",
                "Set parallel.strategy=hybrid_shard, or leave shard_degree out.");
  }
  if (whole && parallel.hierarchical_gather == AutoBool::kTrue) {
    check.wrong("parallel.hierarchical_gather", strategy + " gathers nothing",
                "Leave it at auto, or choose a strategy that shards.");
  }
  if (parallel.reduce == ReduceGradients::kTwoHop && !may_have_replicas_of_shards(parallel)) {
    check.wrong("parallel.reduce",
                "two_hop adds inside shard groups and then across them, and " + strategy +
                    " does not have several such groups",
                "Set parallel.strategy=hybrid_shard, or parallel.reduce to each or last.");
  }
  if (parallel.activation_offload &&
      parallel.activation_checkpointing.kind != ActivationCheckpointing::Kind::kBlocks) {
    check.wrong("parallel.activation_offload",
                "only inputs of blocks that are computed again as a whole are offloaded, and "
                "parallel.activation_checkpointing has none",
                "Set parallel.activation_checkpointing to full or a number.");
  }
}

void check_precision(const Config& config, Check& check) {
  const PrecisionConfig& precision = config.precision;
  if (precision.param_dtype != Compute::kAuto && precision.param_dtype != precision.compute) {
    check.wrong("precision.param_dtype", "is another name of precision.compute, and they differ",
                "Keep one of the two.");
  }
}

}  // namespace

void complete(ResolvedConfig& resolved, std::string_view stem) {
  Config& config = resolved.config;
  Completion completion(resolved);
  if (config.run.name.empty()) {
    completion.derive("run.name", config.run.name, std::string(stem), "the config file's name");
  }
  if (config.run.dir.empty()) {
    completion.derive("run.dir", config.run.dir,
                      absolute_path("runs/" + config.run.name, Path()).string(), "run.name");
  }
  ModelConfig& model = config.model;
  DataConfig& data = config.data;
  if (const ModelPreset* preset = find_model_preset(model.preset); preset != nullptr) {
    completion.size("model.n_layer", model.n_layer, preset->n_layer, "model.preset");
    completion.size("model.n_head", model.n_head, preset->n_head, "model.preset");
    completion.size("model.n_embd", model.n_embd, preset->n_embd, "model.preset");
    completion.size("model.n_positions", model.n_positions, preset->n_positions, "model.preset");
  }
  if (model.init_from.empty()) {
    completion.size("model.n_positions", model.n_positions, data.block_size, "data.block_size");
  }
  completion.size("data.block_size", data.block_size, model.n_positions, "model.n_positions");
  completion.size("data.stride", data.stride, data.block_size, "data.block_size");
  if (data.train.empty()) {
    completion.derive("data.train", data.train, std::vector<std::string>{"builtin"}, "default");
  }
  const auto site = [&](std::string_view key, double& value) {
    if (value == -1) completion.derive(key, value, model.dropout, "model.dropout");
  };
  site("model.embd_dropout", model.embd_dropout);
  site("model.attn_dropout", model.attn_dropout);
  site("model.resid_dropout", model.resid_dropout);
  PrecisionConfig& precision = config.precision;
  if (precision.compute == Compute::kAuto && precision.param_dtype != Compute::kAuto) {
    completion.derive("precision.compute", precision.compute, precision.param_dtype,
                      "precision.param_dtype");
  }
}

void check(const ResolvedConfig& resolved, Mistakes& mistakes) {
  Check check(resolved, mistakes);
  check_model(resolved.config, check);
  check_data(resolved.config, check);
  check_optim(resolved.config, check);
  check_train(resolved.config, check);
  check_parallel(resolved.config, check);
  check_precision(resolved.config, check);
}

}  // namespace tessera
