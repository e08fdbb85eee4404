// Sharded training on real processes gives the training of one process, by the measure of
// docs/distributed.md, and its checkpoints load at any number of ranks and any strategy.
#include "distributed/rank_run.h"

namespace tessera::testing {
namespace {

const std::vector<std::string> kLastModel = {"checkpoint.best=false"};

class Sharding : public RankRun {
 protected:
  Tensors model_of(const std::string& name) const {
    return read_tensors(run(name) / "model" / "model.safetensors");
  }
  static std::vector<std::string> joined(std::vector<std::string> a,
                                         const std::vector<std::string>& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
  }
};

struct Case {
  const char* name;
  int ranks;
  std::vector<std::string> overrides;
};

class ShardingEquality : public Sharding, public ::testing::WithParamInterface<Case> {};

TEST_P(ShardingEquality, TrainsAsOneProcess) {
  const std::vector<std::string> common = joined(kLastModel, {"train.max_steps=8"});
  const std::vector<Json> one = trained_by(1, "one", common);
  const std::vector<Json> lines =
      trained_by(GetParam().ranks, "sharded", joined(common, GetParam().overrides));
  expect_equal_losses(values(lines, "step", "loss"), values(one, "step", "loss"), "loss");
  expect_equal_losses(values(lines, "eval", "loss"), values(one, "eval", "loss"), "evaluation");
  expect_equal_tensors(model_of("sharded"),
                       read_tensors(checkpoint("one", 8) / "model.safetensors"), "model");
}

INSTANTIATE_TEST_SUITE_P(
    Settings, ShardingEquality,
    ::testing::Values(
        Case{"FullShard", 3, {"parallel.strategy=full_shard"}},
        Case{"GradOpWholeModelOneUnit",
             2,
             {"parallel.strategy=shard_grad_op", "parallel.wrap=none"}},
        Case{"FullShardByGlooPostPrefetchCheckpointing",
             2,
             {"parallel.strategy=full_shard", "parallel.transport=gloo",
              "parallel.backward_prefetch=post", "parallel.activation_checkpointing=full",
              "parallel.activation_offload=true", "parallel.activation_offload_horizon=1"}},
        Case{"HybridSizeWrapSelective",
             4,
             {"parallel.strategy=hybrid_shard", "parallel.shard_degree=2", "parallel.wrap=size",
              "parallel.min_num_params=2000", "parallel.activation_checkpointing=selective"}},
        Case{"HybridZero2TwoHop",
             4,
             {"parallel.strategy=hybrid_shard_zero2", "parallel.shard_degree=2",
              "train.gradient_accumulation=3", "~train.batch_size", "parallel.reduce=two_hop"}},
        // One host declared as two nodes: a shard group spans them.
        Case{"MicsOverTwoNodes",
             4,
             {"parallel.strategy=mics", "parallel.shard_degree=4", "parallel.ranks_per_node=2"}},
        Case{"OffloadEfficientLoading",
             2,
             {"parallel.strategy=full_shard", "parallel.cpu_offload=true",
              "parallel.efficient_loading=true", "parallel.param_persistence_threshold=100"}}),
    [](const auto& parameters) { return std::string(parameters.param.name); });

// Every change of ranks and strategy goes on as if nothing had changed: weights, moments, position.
TEST_F(Sharding, CheckpointsLoadAtAnyRankCountAndStrategy) {
  const std::vector<std::string> plan = joined(kLastModel, {"optim.decay_steps=24"});
  trained_by(1, "whole", joined(plan, {"train.max_steps=24"}));
  struct Leg {
    int ranks;
    std::vector<std::string> how;
  };
  const std::vector<Leg> legs = {
      {2, {"parallel.strategy=full_shard"}},
      {1, {"parallel.strategy=auto"}},
      {3, {"parallel.strategy=full_shard"}},
      {4, {"parallel.strategy=full_shard", "parallel.efficient_loading=true"}},
      {2, {"parallel.strategy=hybrid_shard", "parallel.shard_degree=1"}},
      {4, {"parallel.strategy=hybrid_shard", "parallel.shard_degree=2", "parallel.wrap=none"}},
      {1, {"parallel.strategy=auto"}},
      {4, {"parallel.strategy=full_shard"}},
  };
  int until = 0;
  for (const Leg& leg : legs) {
    until += 3;
    trained_by(leg.ranks, "moved",
               joined(joined(plan, leg.how), {"train.max_steps=" + std::to_string(until)}));
  }
  expect_equal_losses(values(metrics("moved"), "step", "loss"),
                      values(metrics("whole"), "step", "loss"), "moved");
  expect_equal_tensors(model_of("moved"),
                       read_tensors(checkpoint("whole", 24) / "model.safetensors"), "moved");
}

// The same layout again: the same bytes in every file of every rank.
TEST_F(Sharding, AResumeOnTheSameLayoutIsExact) {
  const std::vector<std::string> plan =
      joined(kLastModel, {"parallel.strategy=full_shard", "optim.decay_steps=8"});
  trained_by(2, "straight", joined(plan, {"train.max_steps=8"}));
  trained_by(2, "resumed", joined(plan, {"train.max_steps=3"}));
  trained_by(2, "resumed", joined(plan, {"train.max_steps=8"}));
  for (const char* stem : {"model", "optimizer"}) {
    for (const char* part : {"-00001-of-00002.safetensors", "-00002-of-00002.safetensors"}) {
      const std::string file = std::string(stem) + part;
      EXPECT_EQ(read_file(checkpoint("straight", 8) / file),
                read_file(checkpoint("resumed", 8) / file))
          << file;
    }
  }
}

// More ranks than some parameters have rows: shards that hold nothing of a tensor, or nothing.
TEST_F(Sharding, EmptyShardsWork) {
  const std::vector<std::string> tiny = joined(
      kLastModel, {"train.max_steps=3", "model.n_embd=2", "model.n_head=1", "model.n_layer=1"});
  trained_by(1, "one", tiny);
  trained_by(4, "four", joined(tiny, {"parallel.strategy=full_shard"}));
  expect_equal_tensors(model_of("four"), read_tensors(checkpoint("one", 3) / "model.safetensors"),
                       "four");
}

TEST_F(Sharding, SamplesAndGenerationWorkOnShards) {
  const std::vector<Json> lines =
      trained_by(2, "sampled",
                 joined(kLastModel, {"train.max_steps=4", "train.sample_every=2",
                                     "train.sample_tokens=8", "parallel.strategy=full_shard"}));
  EXPECT_EQ(last_event(lines, "end").at("status"), "done");
  RunOptions command;
  command.arguments = {
      "generate", run("sampled").string(), "--prompt", "a", "--max-new-tokens", "4", "--json"};
  const RunResult result = run_program(command);
  EXPECT_EQ(result.exit_code, 0) << result.describe();
}

// A step's trace: while a block computes, the parameters of the next are on their way.
TEST_F(Sharding, TheTraceShowsGathersDuringCompute) {
  trained_by(
      2, "traced",
      {"train.max_steps=2", "parallel.strategy=full_shard", "log.trace_step=2", "model.n_layer=3"});
  for (const char* rank : {"0", "1"}) {
    const Json trace = Json::parse(
        read_file(run("traced") / "trace" / ("step_2.rank_" + std::string(rank) + ".json")));
    const auto find = [&](const std::string& name) {
      for (const Json& event : trace.at("traceEvents")) {
        if (event.at("name") == name) return event;
      }
      return Json();
    };
    const Json forward = find("Forward h.0"), gather = find("all_gather, parameters of h.1");
    ASSERT_FALSE(forward.is_null());
    ASSERT_FALSE(gather.is_null());
    const double begun = gather.at("ts"), done = begun + gather.at("dur").get<double>();
    const double computed = forward.at("ts");
    EXPECT_LT(begun, computed);
    EXPECT_GT(done, computed + forward.at("dur").get<double>());
  }
}

// What the allocator counts at a step's worst is what `tessera plan` says, and it falls as ranks
// rise. Blocks below 32 KiB are not counted: the model is wide enough for that.
TEST_F(Sharding, PeakMemoryIsAsPlannedAndFallsWithRanks) {
  const std::vector<std::string> model = {
      "model.n_embd=192",      "model.n_layer=4",   "model.vocab_size=4096",
      "model.dropout=0",       "train.max_steps=3", "train.eval_every=0",
      "checkpoint.every=0",    "run.threads=1",     "checkpoint.on_exit=false",
      "precision.compute=f32", "log.every=1",       "parallel.strategy=full_shard"};
  double before = 1e18;
  for (const int ranks : {2, 4}) {
    const std::string name = "ranks" + std::to_string(ranks);
    std::vector<std::string> rows = model;
    rows.push_back("train.global_batch_size=" + std::to_string(2 * ranks));
    rows.push_back("train.batch_size=2");
    const std::vector<Json> lines = trained_by(ranks, name, rows);
    double measured = 0;
    for (const Json& line : events(lines, "step")) {
      measured = line.at("memory_bytes").at("peak");
    }
    RunOptions command = train_command(name, rows);
    command.arguments.front() = "plan";
    std::erase(command.arguments, "--fresh");
    command.arguments.insert(command.arguments.end(), {"--world-size", std::to_string(ranks)});
    const RunResult plan = run_program(command);
    ASSERT_EQ(plan.exit_code, 0) << plan.describe();
    const double predicted =
        last_event(parse_json_lines(plan.out), "plan").at("memory_bytes").at("total");
    EXPECT_NEAR(measured, predicted, 0.1 * predicted) << ranks << " ranks";
    EXPECT_LT(measured, before);
    before = measured;
  }
}

// RUN/model is of the run's best checkpoint, else of its newest, or it is not there.
TEST_F(Sharding, TheModelOfARunIsNeverOfAnOlderCheckpoint) {
  const std::vector<std::string> sharded = {"parallel.strategy=full_shard"};
  const Path model = run("on") / "model";
  const auto until = [&](int ranks, int step, const std::vector<std::string>& how) {
    const RunResult result = run_program(rank_command(
        ranks, "on", joined(joined(kLastModel, how), {"train.max_steps=" + std::to_string(step)})));
    EXPECT_EQ(result.exit_code, 0) << result.describe();
    return result;
  };
  const auto named = [&](const RunResult& result) {
    return Path(last_event(parse_json_lines(result.out), "end").at("model").get<std::string>());
  };
  EXPECT_EQ(named(until(2, 3, sharded)), model);
  EXPECT_EQ(read_file(model / "tessera_model.json"), "{\"step\": 3}\n");
  const RunResult alone = until(1, 6, {});
  EXPECT_EQ(named(alone), checkpoint("on", 6));
  EXPECT_FALSE(std::filesystem::exists(model));
  EXPECT_NE(alone.err.find("removed " + model.string()), std::string::npos) << alone.err;
  EXPECT_EQ(named(until(2, 9, sharded)), model);
  EXPECT_EQ(read_file(model / "tessera_model.json"), "{\"step\": 9}\n");
  EXPECT_EQ(named(until(2, 12, joined(sharded, {"checkpoint.unified_model=false"}))),
            checkpoint("on", 12));
  EXPECT_FALSE(std::filesystem::exists(model));
}

TEST_F(Sharding, TheModelOfTheBestCheckpointStaysUntilABetterOne) {
  trained_by(2, "best", {"train.max_steps=3", "parallel.strategy=full_shard"});
  const std::string before = read_file(run("best") / "model" / "model.safetensors");
  trained_by(1, "best", {"train.max_steps=5", "optim.lr=10", "optim.grad_clip=0"});
  EXPECT_TRUE(std::filesystem::exists(checkpoint("best", 5)));
  EXPECT_EQ(read_file(run("best") / "model" / "tessera_model.json"), "{\"step\": 3}\n");
  EXPECT_EQ(read_file(run("best") / "model" / "model.safetensors"), before);
}

TEST_F(Sharding, AModelsFolderThatHoldsMoreIsRefusedBeforeTraining) {
  const std::vector<std::string> how = {"parallel.strategy=full_shard", "train.max_steps=2"};
  const Path notes = run("mine") / "model" / "notes.txt";
  folder_.write("runs/mine/model/notes.txt", "mine");
  const RunResult refused = run_program(rank_command(2, "mine", how));
  expect_error(refused, 4, {notes.string(), "Move ", "checkpoint.unified_model=false"});
  EXPECT_TRUE(events(parse_json_lines(refused.out), "step").empty());
  trained_by(2, "mine", joined(how, {"checkpoint.unified_model=false"}));
  EXPECT_EQ(read_file(notes), "mine");
}

TEST_F(Sharding, WhereTheModelCannotBeWrittenTheCheckpointIsNamed) {
  // The optimizer state of a third is two thirds of a model's size.
  const std::vector<std::string> how = {"parallel.strategy=full_shard", "parallel.transport=gloo",
                                        "train.max_steps=2"};
  RunOptions limited = rank_command(3, "large", how);
  limited.file_size_bytes = std::size_t{120} << 10;
  const RunResult result = run_program(limited);
  expect_error(result, 4,
               {checkpoint("large", 2).string() + " is whole", "limit on the size of files",
                "run the same command again"});
  const Json end = last_event(parse_json_lines(result.out), "end");
  EXPECT_EQ(end.at("status"), "failed");
  EXPECT_EQ(end.at("model"), checkpoint("large", 2).string());
  EXPECT_NE(result.err.find("next:"), std::string::npos) << result.err;
  EXPECT_FALSE(std::filesystem::exists(run("large") / "model"));
  const std::vector<Json> again = trained_by(3, "large", how);
  EXPECT_TRUE(events(again, "step").empty());
  EXPECT_TRUE(std::filesystem::exists(run("large") / "model" / "model.safetensors"));
}

TEST_F(Sharding, ADegreeThatDoesNotDivideTheRanksIsRefused) {
  const RunResult result = run_program(
      rank_command(4, "refused", {"parallel.strategy=hybrid_shard", "parallel.shard_degree=3"}));
  EXPECT_EQ(result.exit_code, 2) << result.describe();
  EXPECT_NE(result.err.find("1, 2 or 4"), std::string::npos) << result.describe();
}

}  // namespace
}  // namespace tessera::testing
