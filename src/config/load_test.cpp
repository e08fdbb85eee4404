#include "config/load.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "base/error.h"
#include "base/temporary_directory.h"
#include "config/format.h"
#include "config/remarks.h"

namespace tessera {
namespace {

// A folder of configs, and the loading of one of them.
class LoadTest : public testing::Test {
 protected:
  Path write(const std::string& name, const std::string& text) {
    const Path path = folder_.path() / name;
    files_->create_directories(path.parent_path());
    write_file_atomically(*files_, path, text);
    return path;
  }
  // A config with `text` behind what every config needs.
  ResolvedConfig load(const std::string& text, std::vector<std::string> overrides = {}) {
    source_.config = write("run.yaml", text).string();
    source_.overrides = std::move(overrides);
    return load_config(source_);
  }
  ResolvedConfig load_overridden(std::vector<std::string> overrides) {
    return load(kBase, std::move(overrides));
  }
  // The message, with the folder's name taken out.
  std::string mistakes_of(const std::string& text, std::vector<std::string> overrides = {}) {
    try {
      load(text, std::move(overrides));
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kConfig);
      std::string message = error.what();
      const std::string prefix = folder_.path().string() + "/";
      for (auto at = message.find(prefix); at != std::string::npos; at = message.find(prefix)) {
        message.erase(at, prefix.size());
      }
      return message;
    }
    return "no mistake";
  }

  static constexpr const char* kBase = "model: {preset: tiny}\ntrain: {max_steps: 10}\n";
  TemporaryDirectory folder_;
  std::unique_ptr<FileSystem> files_ = make_posix_file_system();
  ConfigSource source_;
};

TEST_F(LoadTest, FillsInWhatAPresetAndTheBlockSizeDecide) {
  const Config config = load(kBase).config;
  EXPECT_EQ(config.model.n_embd, 64);
  EXPECT_EQ(config.model.n_layer, 2);
  EXPECT_EQ(config.model.n_positions, 64);
  EXPECT_EQ(config.data.block_size, 64);
  EXPECT_EQ(config.data.stride, 64);
  EXPECT_EQ(config.data.train, std::vector<std::string>{"builtin"});
  EXPECT_EQ(config.run.name, "run");
  EXPECT_EQ(config.run.dir, (std::filesystem::current_path() / "runs/run").string());
  EXPECT_EQ(config.model.embd_dropout, 0);
  EXPECT_EQ(config.optim.lr, 3e-4);
}

TEST_F(LoadTest, ReadsEveryKindOfValue) {
  const Config config = load(R"(
model:
  n_layer: 3
  n_head: 1
  n_embd: 8
  tie_head: false
  layer_norm_epsilon: 1e-6
data:
  block_size: 16
  train: [a.txt, "b.txt"]
  sampling: windows
  separator: "none"
optim:
  betas: [0.8, .9]
train:
  max_steps: 1e4
  eval_every: 0.5 epochs
log:
  every: 5 steps
  ranks: all
run:
  notes: |
    two
    lines
  name: 12
)")
                            .config;
  EXPECT_EQ(config.model.n_layer, 3);
  EXPECT_FALSE(config.model.tie_head);
  EXPECT_EQ(config.model.layer_norm_epsilon, 1e-6);
  EXPECT_EQ(config.model.n_positions, 16);
  EXPECT_EQ(config.data.train, (std::vector<std::string>{(folder_.path() / "a.txt").string(),
                                                         (folder_.path() / "b.txt").string()}));
  EXPECT_EQ(config.data.sampling, Sampling::kWindows);
  EXPECT_EQ(config.optim.betas, (std::array<double, 2>{0.8, 0.9}));
  EXPECT_EQ(config.train.max_steps, 10000);
  EXPECT_EQ(config.train.eval_every, (Interval{0.5, Interval::Unit::kEpochs}));
  EXPECT_EQ(config.log.every, (Interval{5, Interval::Unit::kSteps}));
  EXPECT_EQ(config.log.ranks, LogRanks::kAll);
  EXPECT_EQ(config.run.notes, "two\nlines\n");
  EXPECT_EQ(config.run.name, "12");
}

TEST_F(LoadTest, ReportsAllMistakesAtOnceWithTheirPlaces) {
  const std::string message = mistakes_of(R"(model:
  preset: tiny
  n_layr: 3
optim:
  lr: fast
  lr: 3
  betas: [0.9]
train:
  max_steps: 1.5
  non_finite: stpo
trian: {}
)",
                                          {"model.dropout=2", "+model.n_head=2"});
  EXPECT_NE(
      message.find("run.yaml:3:3: model.n_layr: unknown key. Did you mean 'model.n_layer'?\n"),
      message.npos)
      << message;
  EXPECT_NE(message.find("run.yaml:6:3: lr: given twice, first in line 5."), message.npos)
      << message;
  EXPECT_NE(message.find("run.yaml:5:7: optim.lr: must be a number, not 'fast'."), message.npos)
      << message;
  EXPECT_NE(message.find("run.yaml:7:10: optim.betas: must be a list of two numbers"), message.npos)
      << message;
  EXPECT_NE(message.find("run.yaml:9:14: train.max_steps: must be a whole number, not '1.5'."),
            message.npos)
      << message;
  EXPECT_NE(message.find("run.yaml:10:15: train.non_finite: must be one of skip, stop, not 'stpo'. "
                         "Did you mean 'stop'?"),
            message.npos)
      << message;
  EXPECT_NE(message.find("run.yaml:11:1: trian: unknown group. Did you mean 'train'?"),
            message.npos)
      << message;
  EXPECT_NE(
      message.find("override 'model.dropout=2': model.dropout: must be at least 0 and below 1"),
      message.npos)
      << message;
  EXPECT_NE(message.find("write 'model.n_head=2' without '+'"), message.npos) << message;
  EXPECT_NE(message.find("\n9 mistakes in the configuration; the first: run.yaml:"), message.npos)
      << message;
}

TEST_F(LoadTest, NamesEachSingleMistake) {
  const struct {
    const char* text;
    const char* expected;
  } kCases[] = {
      {"model: 3\n", "run.yaml:1:8: model: must be a group of settings"},
      {"- a\n", "run.yaml:1:1: a config is a mapping of groups"},
      {"optim: {lr: \"3\"}\n", "optim.lr: must be a number, not '3'. Remove the quotes."},
      {"optim: {lr: }\n", "optim.lr: has no value. Remove it for the default (3.0e-4)."},
      {"optim: {lr: 1_000}\n", "not '1_000'. Write 1000."},
      {"optim: {lr: -1}\n", "optim.lr: must be at least 0 and at most 1000, not '-1'"},
      {"optim: {lr: 1e999}\n", "not '1e999'"},
      {"optim: {lr: nan}\n", "must be a number, not 'nan'"},
      {"optim: {lr: [1]}\n", "must be a number, not a list"},
      {"optim: {lr: {a: 1}}\n", "must be a number, not a mapping"},
      {"train: {lr: 3}\n", "train.lr: unknown key. Did you mean 'optim.lr'?"},
      {"lr: 3\n", "lr: unknown group. Did you mean 'optim.lr'?"},
      {"optim.lr: 3\n", "optim.lr: a setting stands in its group. Write 'optim:' and below it"},
      {"model: {tie_head: yes}\n", "model.tie_head: must be true or false, not 'yes'"},
      {"model: {n_layer: 99999999999999999999}\n", "model.n_layer: must be"},
      {"model: {preset: gpt-2}\n", "did you mean 'gpt2'?"},
      {"train: {eval_every: 3 weeks}\n", "must be a number of steps, or text such as `3 epochs`"},
      {"train: {eval_every: 0.5}\n", "must be a number of steps"},
      {"train: {eval_every: -1}\n", "train.eval_every: must be at least 0"},
      {"run: {device: gpu}\n", "run.device: must be auto, cpu, cuda or cuda:N, not 'gpu'"},
      {"run: {name: a/b}\n", "run.name: must be one name without '/'"},
      {"data: {tokenizer: 'bpe:12'}\n", "data.tokenizer: must be bpe:N with N from 257"},
      {"data: {train: [a, '']}\n", "data.train: a path is empty"},
      {"data: {train: ['a\\0b', \"x\\0y\"]}\n", "data.train: is not plain UTF-8 text"},
      {"parallel: {strategy: dpp}\n", "not 'dpp'. Did you mean 'ddp'?"},
      {"parallel: {limit_all_gathers: maybe}\n", "must be a whole number, not 'maybe'"},
      {"parallel: {cpu_offload: all}\n", "parallel.cpu_offload: must be true or false, not 'all'"},
      {"parallel: {shard_degree: 2, sharded_data_parallel_degree: 2}\n",
       "run.yaml:1:29: parallel.sharded_data_parallel_degree: is given twice, also by its other "
       "name. Keep one of parallel.shard_degree and"},
      {"parallel: {activation_checkpointing: 0}\n",
       "must be none, selective, full, or N for every N-th block (a whole number from 1), not '0'"},
      {"parallel: {activation_checkpointing: 1.5}\n", "a whole number from 1), not '1.5'"},
      {"parallel: {activation_checkpointing: ful}\n", "Did you mean 'full'?"},
      {"precision: {compute: fp8}\n",
       "precision.compute: 'fp8' cannot be used: 8-bit formats need"},
      {"precision: {param_dtype: float8_e4m3fn}\n",
       "precision.param_dtype: 'float8_e4m3fn' cannot"},
      {"precision: {reduce_dtype: FP8}\n", "libtorch's C++ interface offers neither; use bf16"},
      {"parallel: {heartbeat_timeout: 1}\n", "parallel.heartbeat_timeout: must be at least 3"},
      {"run: {notes: '${env:TESSERA_NOT_SET}'}\n",
       "run.notes: the environment variable TESSERA_NOT_SET is not set"},
      {"run: {notes: '${oc.env:X}'}\n", "run.notes: cannot read the reference '${oc.env:X}'"},
      {"run: {notes: '${env:X'}\n", "cannot read the reference"},
      {"<<: {a: 1}\n", "merge keys are not read"},
      {"defaults: nothing\n", "run.yaml:1:11: defaults: no config './nothing'"},
      {"defaults: [run]\n", "run.yaml' is based on itself"},
      {"defaults: [{a: b, c: d}]\n", "defaults: must be a list of files"},
      {"defaults: [{nogroup: x}]\n", "defaults: there is no group 'nogroup'"},
  };
  for (const auto& item : kCases) {
    EXPECT_NE(mistakes_of(item.text).find(item.expected), std::string::npos)
        << item.text << "gave: " << mistakes_of(item.text) << "\nexpected: " << item.expected;
  }
}

TEST_F(LoadTest, FindsContradictionsBetweenSettings) {
  const struct {
    std::vector<std::string> overrides;
    const char* expected;
  } kCases[] = {
      {{"~model.preset"}, "model.preset: the model's size is not given: n_layer, n_head, n_embd"},
      {{"model.n_head=3"}, "model.n_embd: 64 is not divisible by model.n_head = 3"},
      {{"data.block_size=65"}, "override 'data.block_size=65': data.block_size: 65 is longer"},
      {{"data.stride=65"}, "data.stride: 65 would leave out text"},
      {{"data.train=[builtin,a]"}, "data.train: builtin stands alone"},
      {{"optim.min_lr=1"}, "optim.min_lr: 1 is larger than optim.lr = 3e-4"},
      {{"optim.warmup=1.5"}, "optim.warmup: must be a whole number of steps"},
      {{"optim.warmup=20", "optim.decay_steps=10"}, "optim.warmup: 20 is longer"},
      {{"optim.schedule=plateau"}, "Set train.eval_every."},
      {{"train.early_stopping_patience=2"}, "nothing is evaluated"},
      {{"train.max_steps=0"}, "train.max_steps: no end of training is given"},
      {{"train.global_batch_size=4", "train.batch_size=8"}, "train.batch_size: 8 is larger"},
      {{"train.global_batch_size=4", "train.gradient_accumulation=5"}, "5 micro-batches are more"},
      {{"train.global_batch_size=10", "train.batch_size=2", "train.gradient_accumulation=2"},
       "10 is no multiple of"},
      {{"train.auto_batch=true", "train.batch_size=8"},
       "train.auto_batch: train.batch_size is given"},
      {{"train.auto_batch=true", "train.global_batch_size=8", "train.gradient_accumulation=2"},
       "leave nothing to find"},
      {{"train.auto_block_size=true", "data.block_size=32"},
       "train.auto_block_size: data.block_size is given"},
      {{"parallel.strategy=ddp", "parallel.shard_degree=2"},
       "parallel.shard_degree: 2 ranks cannot share a model that parallel.strategy=ddp keeps "
       "whole"},
      {{"parallel.strategy=none", "parallel.sharded_data_parallel_degree=4"},
       "parallel.strategy=none keeps whole"},
      {{"parallel.strategy=ddp", "parallel.hierarchical_gather=true"}, "gathers nothing"},
      {{"parallel.reduce=two_hop"}, "parallel.strategy=auto does not have several such groups"},
      {{"parallel.reduce=two_hop", "parallel.strategy=full_shard"}, "does not have several"},
      {{"parallel.activation_offload=true"},
       "parallel.activation_checkpointing has none. Set parallel.activation_ch"},
      {{"parallel.activation_offload=true", "parallel.activation_checkpointing=selective"},
       "parallel.activation_checkpointing has none"},
      {{"parallel.activation_offload={horizon: 2}"}, "must be true or false, not a mapping"},
      {{"precision.compute=f32", "precision.param_dtype=bf16"},
       "precision.param_dtype: is another name of precision.compute, and they differ"},
      {{"model.embd_dropout=-0.5"}, "model.embd_dropout: must be -1"},
      {{"data.tokenizer=bpe:512", "model.vocab_size=300"}, "model.vocab_size: 300 is smaller"},
  };
  for (const auto& item : kCases) {
    EXPECT_NE(mistakes_of(kBase, item.overrides).find(item.expected), std::string::npos)
        << mistakes_of(kBase, item.overrides) << "\nexpected: " << item.expected;
  }
}

TEST_F(LoadTest, ABlockThatFollowsFromTheContextMayBeFound) {
  const ResolvedConfig resolved = load_overridden({"train.auto_block_size=true"});
  EXPECT_EQ(resolved.config.data.block_size, resolved.config.model.n_positions);
  EXPECT_EQ(config_from_yaml(resolved.yaml(), "record"), resolved.config);
}

TEST_F(LoadTest, ReadsTheNamesOfOtherTrainers) {
  const auto parallel = [this](std::vector<std::string> overrides) {
    return load_overridden(std::move(overrides)).config.parallel;
  };
  const struct {
    const char* text;
    Strategy strategy;
  } kStrategyNames[] = {{"mics", Strategy::kHybridShard},
                        {"fsdp", Strategy::kFullShard},
                        {"zero3", Strategy::kFullShard},
                        {"zero2", Strategy::kShardGradOp},
                        {"no_shard", Strategy::kDdp},
                        {"hybrid_shard_zero2", Strategy::kHybridShardZero2},
                        {"FULL_SHARD", Strategy::kFullShard},
                        {"SHARD_GRAD_OP", Strategy::kShardGradOp},
                        {"NO_SHARD", Strategy::kDdp},
                        {"HYBRID_SHARD", Strategy::kHybridShard},
                        {"_HYBRID_SHARD_ZERO2", Strategy::kHybridShardZero2}};
  for (const auto& item : kStrategyNames) {
    EXPECT_EQ(parallel({std::string("parallel.strategy=") + item.text}).strategy, item.strategy);
  }
  EXPECT_EQ(parallel({"parallel.sharded_data_parallel_degree=4"}).shard_degree, 4);
  EXPECT_EQ(
      parallel({"parallel.shard_degree=4", "~parallel.sharded_data_parallel_degree"}).shard_degree,
      0);
  EXPECT_EQ(parallel({"parallel.activation_offload.horizon=7"}).activation_offload_horizon, 7);
  EXPECT_EQ(parallel({"parallel.backward_prefetch=BACKWARD_POST"}).backward_prefetch,
            BackwardPrefetch::kPost);
  EXPECT_EQ(parallel({"parallel.state_dict_type=FULL_STATE_DICT"}).state_dict_type,
            StateDictType::kFull);
  for (const char* name : {"float16", "fp16", "half"}) {
    const std::string text = std::string("precision.compute=") + name;
    EXPECT_EQ(load_overridden({text}).config.precision.compute, Compute::kF16) << name;
  }
  EXPECT_EQ(load_overridden({"precision.reduce_dtype=bfloat16"}).config.precision.reduce_dtype,
            ReduceDtype::kBf16);
  EXPECT_EQ(parallel({"parallel.limit_all_gathers=3"}).limit_all_gathers, 3);
  EXPECT_EQ(parallel({"parallel.limit_all_gathers=false"}).limit_all_gathers, 0);
  EXPECT_EQ(parallel({"parallel.limit_all_gathers=5", "parallel.limit_all_gathers=true"})
                .limit_all_gathers,
            2);
  EXPECT_TRUE(parallel({"parallel.cpu_offload=params"}).cpu_offload);
  EXPECT_TRUE(parallel({"parallel.cpu_offload='params_and_optimizer'"}).cpu_offload);
  EXPECT_FALSE(parallel({"parallel.cpu_offload=none"}).cpu_offload);
  EXPECT_EQ(parallel({"parallel.hierarchical_gather=true"}).hierarchical_gather, AutoBool::kTrue);
}

TEST_F(LoadTest, ReadsWhichBlocksAreCheckpointed) {
  using Kind = ActivationCheckpointing::Kind;
  const struct {
    const char *text, *printed;
    ActivationCheckpointing value;
  } kCases[] = {{"none", "none", {Kind::kNone, 0}},
                {"selective", "selective", {Kind::kSelective, 0}},
                {"full", "full", {Kind::kBlocks, 1}},
                {"1", "full", {Kind::kBlocks, 1}},
                {"3", "3", {Kind::kBlocks, 3}}};
  for (const auto& item : kCases) {
    const ResolvedConfig resolved =
        load_overridden({std::string("parallel.activation_checkpointing=") + item.text});
    EXPECT_EQ(resolved.config.parallel.activation_checkpointing, item.value) << item.text;
    const std::string line = std::string("activation_checkpointing: ") + item.printed + "\n";
    EXPECT_NE(resolved.yaml(false).find(line), std::string::npos) << item.text;
    EXPECT_EQ(config_from_yaml(resolved.yaml(false), "record"), resolved.config);
  }
}

TEST_F(LoadTest, AParameterFormatIsTheComputeFormat) {
  const ResolvedConfig resolved = load_overridden({"precision.param_dtype=bf16"});
  EXPECT_EQ(resolved.config.precision.compute, Compute::kBf16);
  EXPECT_EQ(config_from_yaml(resolved.yaml(false), "record"), resolved.config);
  EXPECT_EQ(load_overridden({"precision.reduce_dtype=f16"}).config.precision.reduce_dtype,
            ReduceDtype::kF16);
}

TEST_F(LoadTest, RemarksOnWhatHasAnotherEffect) {
  EXPECT_TRUE(config_remarks(load(kBase).config).empty());
  const struct {
    std::vector<std::string> overrides;
    const char* expected;
  } kCases[] = {
      {{"parallel.min_num_params=5"}, "has an effect with parallel.wrap=size only"},
      {{"parallel.wrap=size", "parallel.min_num_params=0"}, "leaves every block by itself"},
      {{"parallel.use_orig_params=false"}, "parallel.use_orig_params=false changes nothing"},
      {{"parallel.sync_module_states=false"}, "all ranks begin with the same weights"},
      {{"parallel.state_dict_type=full"}, "parallel.state_dict_type=full changes nothing"},
      {{"precision.buffer_dtype=bf16"}, "these models have no buffers"},
      {{"parallel.strategy=full_shard", "parallel.reshard_after_forward=false"},
       "makes parallel.strategy=full_shard the same as shard_grad_op"},
      {{"parallel.strategy=hybrid_shard_zero2", "parallel.reshard_after_forward=true"},
       "the same as hybrid_shard."},
      {{"parallel.strategy=ddp", "parallel.max_live_parameters=9",
        "parallel.reshard_after_forward=true"},
       "parallel.strategy=ddp gathers nothing, so these have no effect: "
       "parallel.reshard_after_forward, parallel.max_live_parameters."},
      {{"parallel.activation_offload_horizon=9"}, "parallel.activation_offload=true only"},
      {{"precision.compute=bf16", "precision.loss_scale=9"}, "precision.compute=f16 only"},
  };
  for (const auto& item : kCases) {
    const std::vector<std::string> remarks = config_remarks(load_overridden(item.overrides).config);
    ASSERT_EQ(remarks.size(), 1u) << item.expected;
    EXPECT_NE(remarks[0].find(item.expected), std::string::npos) << remarks[0];
  }
  EXPECT_TRUE(
      config_remarks(load_overridden({"parallel.wrap=size", "parallel.min_num_params=5"}).config)
          .empty());
}

TEST_F(LoadTest, OverridesAreAppliedInOrder) {
  const Config config = load_overridden({"optim.lr=1", "optim.lr= 2e-3 ", "optim.betas=[0.5, 0.6]",
                                         "run.notes='a: b # c'", "train.sample_prompt=To be, or: #",
                                         "model={n_head: 4, n_layer: 5}", "run.name="})
                            .config;
  EXPECT_EQ(config.optim.lr, 2e-3);
  EXPECT_EQ(config.optim.betas, (std::array<double, 2>{0.5, 0.6}));
  EXPECT_EQ(config.run.notes, "a: b # c");
  EXPECT_EQ(config.train.sample_prompt, "To be, or: #");
  EXPECT_EQ(config.model.n_head, 4);
  EXPECT_EQ(config.model.n_layer, 5);
  EXPECT_EQ(config.run.name, "run");
}

TEST_F(LoadTest, TildeTakesTheDefault) {
  const std::string text = std::string(kBase) + "optim: {lr: 1, eps: 0.5}\n";
  EXPECT_EQ(load(text, {"~optim.lr"}).config.optim.lr, 3e-4);
  EXPECT_EQ(load(text, {"~optim.lr"}).config.optim.eps, 0.5);
  EXPECT_EQ(load(text, {"~optim"}).config.optim, OptimConfig());
  EXPECT_EQ(load(text, {"~optim.lr", "optim.lr=2"}).config.optim.lr, 2);
  EXPECT_NE(
      mistakes_of(text, {"~optim.lrr"}).find("optim.lrr: unknown key. Did you mean 'optim.lr'"),
      std::string::npos);
}

TEST_F(LoadTest, RefusesWhatIsNoOverride) {
  const struct {
    const char* text;
    const char* expected;
  } kCases[] = {
      {"b.yaml", "override 'b.yaml': is not of the form key=value"},
      {"=3", "is not of the form key=value"},
      {"optim.betas=[0.9", "override 'optim.betas=[0.9': not valid YAML"},
      {"optim.lr=", "optim.lr: must be a number, not ''"},
      {"optim.lr.x=1", "optim.lr.x: unknown key"},
      {"+new.key=1", "there are no free keys to add"},
      {"++optim.lr=1", "write 'optim.lr=1' without '+'"},
      {"run.notes=\xff", "an override: is not UTF-8 text"},
      {"model=gpt5", "model: no config './model/gpt5'"},
      {"modle.n_layer=1", "modle.n_layer: unknown key. Did you mean 'model.n_layer'?"},
  };
  for (const auto& item : kCases) {
    EXPECT_NE(mistakes_of(kBase, {item.text}).find(item.expected), std::string::npos)
        << mistakes_of(kBase, {item.text}) << "\nexpected: " << item.expected;
  }
}

TEST_F(LoadTest, BasesComeFirstAndInOrder) {
  write("one.yaml", "model: {preset: tiny}\noptim: {lr: 1, eps: 0.1}\ntrain: {max_steps: 1}\n");
  write("bases/two.yaml", "optim: {lr: 2, weight_decay: 7}\ndata: {train: text.txt}\n");
  const Config config =
      load("defaults:\n  - one\n  - bases/two.yaml\noptim: {weight_decay: 8}\n").config;
  EXPECT_EQ(config.optim.lr, 2);
  EXPECT_EQ(config.optim.eps, 0.1);
  EXPECT_EQ(config.optim.weight_decay, 8);
  // Relative to the file that says it.
  EXPECT_EQ(config.data.train.front(), (folder_.path() / "bases/text.txt").string());
}

TEST_F(LoadTest, ReportsACycleOfBases) {
  write("one.yaml", "defaults: two\n");
  write("two.yaml", "defaults: one\n");
  EXPECT_NE(
      mistakes_of("defaults: one\n").find("two.yaml:1:11: defaults: 'one.yaml' is based on itself"),
      std::string::npos)
      << mistakes_of("defaults: one\n");
}

TEST_F(LoadTest, GroupsComeFromFiles) {
  write("model/wide.yaml", "preset: char\nn_embd: 256\n");
  write("elsewhere/model/narrow.yaml", "model:\n  n_embd: 32\n  n_head: 2\n");
  EXPECT_EQ(load_overridden({"model=wide"}).config.model.n_embd, 256);
  EXPECT_EQ(load_overridden({"model=wide"}).config.model.n_layer, 4);
  EXPECT_EQ(load("defaults: [{model: wide}]\ntrain: {max_steps: 1}\n").config.model.n_embd, 256);
  source_.config_dir = folder_.path() / "elsewhere";
  EXPECT_EQ(load_overridden({"model=narrow"}).config.model.n_embd, 32);
  EXPECT_EQ(load_overridden({"model.n_embd=128", "model=narrow"}).config.model.n_embd, 128)
      << "single settings win over files";
  source_.config_dir = folder_.path() / "nowhere";
  try {
    load_overridden({});
    ADD_FAILURE() << "a folder that is not there was accepted";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("--config-dir is not a folder"), std::string::npos);
  }
}

TEST_F(LoadTest, ALaterPresetReplacesEarlierSizes) {
  write("sized.yaml", "model: {preset: tiny, n_layer: 7}\ntrain: {max_steps: 1}\n");
  EXPECT_EQ(load("defaults: sized\n").config.model.n_layer, 7);
  EXPECT_EQ(load("defaults: sized\n", {"model.preset=char"}).config.model.n_layer, 4);
  EXPECT_EQ(
      load("defaults: sized\n", {"model.n_layer=9", "model.preset=char"}).config.model.n_layer, 9);
  const std::string printed = load("defaults: sized\n").yaml();
  EXPECT_EQ(load(printed, {"model.preset=char"}).config.model.n_embd, 128);
  write("sites.yaml", std::string(kBase) + "");
  EXPECT_EQ(
      load(std::string("defaults: sites\nmodel: {attn_dropout: 0.3}\n"), {"model.dropout=0.1"})
          .config.model.attn_dropout,
      0.1);
  EXPECT_EQ(
      load("defaults: sites\nmodel: {attn_dropout: 0.3, dropout: 0.1}\n").config.model.attn_dropout,
      0.3);
}

TEST_F(LoadTest, ReadsTheEnvironment) {
  setenv("TESSERA_TEST_VALUE", "7", 1);
  setenv("TESSERA_TEST_FOLDER", "texts", 1);
  unsetenv("TESSERA_TEST_UNSET");
  const std::string text = std::string(kBase) + R"(
optim:
  weight_decay: ${env:TESSERA_TEST_VALUE}
  betas: ["${env:TESSERA_TEST_UNSET,0.5}", 0.6]
run:
  notes: a ${env:TESSERA_TEST_UNSET,}b $${env:X} $5
data:
  train: ${env:TESSERA_TEST_UNSET,texts}/a.txt
  validation: ${env:TESSERA_TEST_FOLDER}/a.txt
)";
  const Config config = load(text).config;
  EXPECT_EQ(config.optim.weight_decay, 7);
  EXPECT_EQ(config.optim.betas[0], 0.5);
  EXPECT_EQ(config.run.notes, "a b ${env:X} $5");
  EXPECT_EQ(config.data.train.front(), (folder_.path() / "texts/a.txt").string());
  EXPECT_EQ(config.data.validation.front(),
            (std::filesystem::current_path() / "texts/a.txt").string());
}

TEST_F(LoadTest, PathsInOverridesAreRelativeToTheWorkingFolder) {
  const Config config = load_overridden({"data.train=a/../b.txt", "data.tokenizer=./char",
                                         "run.dir=~/x/", "model.init_from=hub:a/b"})
                            .config;
  EXPECT_EQ(config.data.train.front(), (std::filesystem::current_path() / "b.txt").string());
  EXPECT_EQ(config.data.tokenizer, (std::filesystem::current_path() / "char").string());
  EXPECT_EQ(config.run.dir, std::string(std::getenv("HOME")) + "/x");
  EXPECT_EQ(config.model.init_from, "hub:a/b");
}

TEST_F(LoadTest, FindsShippedConfigsByName) {
  write("shipped/quickstart.yaml", std::string("# A quick start.\n") + kBase);
  write("shipped/model/gpt2.yaml", "# GPT-2.\npreset: gpt2\n");
  source_.shipped_dir = folder_.path() / "shipped";
  source_.config = "quickstart";
  EXPECT_EQ(load_config(source_).config.run.name, "quickstart");
  source_.overrides = {"model=gpt2"};
  EXPECT_EQ(load_config(source_).config.model.n_layer, 12);
  source_.config = "quikstart";
  try {
    load_config(source_);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.remedy(), "Did you mean 'quickstart'?");
  }
  const auto list = list_configs(source_.shipped_dir);
  ASSERT_EQ(list.size(), 2u);
  EXPECT_EQ(list[0].name, "quickstart");
  EXPECT_EQ(list[0].summary, "A quick start.");
  EXPECT_EQ(list[1].name, "model/gpt2");
}

TEST_F(LoadTest, NamesAFolderAndUnreadableFiles) {
  source_.config = folder_.path().string();
  try {
    load_config(source_);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(error.reason().find("is a folder, not a config file"), std::string::npos);
  }
  source_.config = "/dev/zero";
  try {
    load_config(source_);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(error.reason().find("is larger than 1 MiB"), std::string::npos);
  }
}

TEST_F(LoadTest, PrintsOriginsAndReadsItselfBack) {
  write("base.yaml", kBase);
  const ResolvedConfig resolved =
      load("defaults: base\noptim:\n  eps: 1e-9\n", {"optim.lr=0.5", "run.notes='$${x}\t\"é\"'"});
  const std::string text = resolved.yaml();
  EXPECT_NE(text.find("\n  lr: 0.5  # override 'optim.lr=0.5'\n"), text.npos) << text;
  EXPECT_NE(text.find("\n  eps: 1.0e-9  # "), text.npos) << text;
  EXPECT_NE(text.find("run.yaml:3:3\n"), text.npos) << text;
  EXPECT_NE(text.find("\n  n_layer: 2  # from model.preset\n"), text.npos) << text;
  EXPECT_NE(text.find("\n  weight_decay: 0.1\n"), text.npos) << text;
  EXPECT_EQ(config_from_yaml(text, "record"), resolved.config);
  EXPECT_EQ(config_from_yaml(resolved.yaml(false), "record"), resolved.config);
  EXPECT_EQ(resolved.where("optim.lr"), "override 'optim.lr=0.5': optim.lr");
  EXPECT_EQ(resolved.where("optim.weight_decay"), "optim.weight_decay");
}

TEST_F(LoadTest, ComparesForAResume) {
  const Config old_config = load(kBase).config;
  const Config new_config =
      load_overridden({"optim.lr=1", "train.max_steps=20", "model.n_layer=3"}).config;
  const auto differences = compare_configs(old_config, new_config);
  ASSERT_EQ(differences.size(), 3u);
  EXPECT_EQ(differences[0].key, "model.n_layer");
  EXPECT_EQ(differences[0].old_value, "2");
  EXPECT_EQ(differences[0].new_value, "3");
  EXPECT_EQ(differences[0].policy, ResumePolicy::kRefuse);
  EXPECT_EQ(differences[1].policy, ResumePolicy::kWarn);
  EXPECT_EQ(differences[2].policy, ResumePolicy::kFree);
  EXPECT_TRUE(compare_configs(old_config, old_config).empty());
}

}  // namespace
}  // namespace tessera
