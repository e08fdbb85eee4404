// `tessera plan`: what it predicts, finds and draws.
#include <gtest/gtest.h>

#include "support/json_lines.h"
#include "support/run_folder.h"
#include "support/run_program.h"

namespace tessera::testing {
namespace {

class PlanCommand : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!engine_is_built()) GTEST_SKIP() << "plans are made by the engine, which is not built";
  }

  static RunResult plan(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"plan", "quickstart", "model.vocab_size=50257"});
    return run_tessera(std::move(arguments));
  }

  static Json planned(std::vector<std::string> arguments) {
    arguments.emplace_back("--json");
    const RunResult result = plan(std::move(arguments));
    EXPECT_EQ(result.exit_code, 0) << result.describe();
    const std::vector<Json> lines = parse_json_lines(result.out);
    EXPECT_EQ(lines.size(), 1U);
    return lines.empty() ? Json() : lines[0];
  }
};

std::int64_t bytes(const Json& plan, const char* what) {
  return plan.at("memory_bytes").at(what).get<std::int64_t>();
}

TEST_F(PlanCommand, LargeModelsOnManyRanksTakeSecondsAndNoMemory) {
  RunOptions options;
  options.arguments = {"plan",
                       "quickstart",
                       "model=gpt2-30b",
                       "model.vocab_size=50257",
                       "data.block_size=2048",
                       "parallel.strategy=hybrid_shard",
                       "parallel.shard_degree=64",
                       "--world-size=512",
                       "--ranks-per-node=8",
                       "--device=cuda",
                       "--json"};
  options.address_space_bytes = std::size_t{3} << 30;
  const RunResult result = run_program(options);
  ASSERT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_LT(result.elapsed, std::chrono::seconds(20));
  const Json plan = parse_json_lines(result.out).at(0);
  EXPECT_EQ(plan.at("parameters"), 29'974'418'432);
  EXPECT_EQ(plan.at("mesh"), (Json{{"shard", 64}, {"replica", 8}}));
  EXPECT_TRUE(plan.at("two_level").get<bool>());
  // f32 weights, gradients and two moments, over 64 ranks.
  const std::int64_t state =
      bytes(plan, "parameters") + bytes(plan, "gradients") + bytes(plan, "optimizer");
  EXPECT_NEAR(static_cast<double>(state), 16.0 * 29'974'418'432 / 64, 1e6);
  // Of each gather a rank sends (p/k - 1)/p across nodes and (k-1)/k inside: 7/64 and 7/8.
  const Json& gathers = plan.at("sent_bytes").at("all_gather");
  EXPECT_NEAR(gathers.at("inside_node").get<double>() / gathers.at("across_nodes").get<double>(), 8,
              1e-6);
}

TEST_F(PlanCommand, ShardsAndReplicasSendWhatTheFormulasSay) {
  const double model = 4.0 * 124'439'808;
  const std::vector<std::string> gpt2 = {"model=gpt2", "data.block_size=256", "train.batch_size=1",
                                         "precision.compute=f32", "--world-size=4"};
  std::vector<std::string> ddp = gpt2, full = gpt2;
  ddp.emplace_back("parallel.strategy=ddp");
  full.emplace_back("parallel.strategy=full_shard");
  const Json replicas = planned(ddp), shards = planned(full);
  const auto sent = [](const Json& plan, const char* verb) {
    return plan.at("sent_bytes").at(verb).at("inside_node").get<double>();
  };
  EXPECT_NEAR(sent(replicas, "all_reduce"), 2 * model * 3 / 4, model * 1e-4);
  EXPECT_NEAR(sent(shards, "reduce_scatter"), model * 3 / 4, model * 1e-4);
  // Twice, but for the embedding (gathered throughout, for it is the head's too), the last block
  // and the head.
  const double embedding = 4.0 * (50257 + 1024) * 768, block = 4.0 * 7'087'872;
  EXPECT_NEAR(sent(shards, "all_gather"), (2 * model - embedding - block) * 3 / 4, model * 1e-3);
  EXPECT_LT(bytes(shards, "total"), bytes(replicas, "total"));
}

TEST_F(PlanCommand, FindsTheLargestBatchThatFits) {
  const std::vector<std::string> fit = {"model=gpt2", "data.block_size=256", "--fit=batch_size",
                                        "--memory=8GiB"};
  const Json plan = planned(fit);
  const std::int64_t rows = plan.at("micro_batch_rows").get<std::int64_t>();
  EXPECT_LE(bytes(plan, "total"), std::int64_t{8} << 30);
  const Json more = planned(
      {"model=gpt2", "data.block_size=256", "train.batch_size=" + std::to_string(rows + 1)});
  EXPECT_GT(bytes(more, "total"), std::int64_t{8} << 30);

  const RunResult nothing = PlanCommand::plan({"model=gpt2", "--fit=batch_size", "--memory=1GiB"});
  EXPECT_EQ(nothing.exit_code, 6) << nothing.describe();
  EXPECT_NE(nothing.last_error_line().find("even train.batch_size=1 takes"), std::string::npos)
      << nothing.describe();
  EXPECT_EQ(PlanCommand::plan({"--fit=batch_size", "--memory=lots"}).exit_code, 2);
  EXPECT_EQ(PlanCommand::plan({"--memory=1GiB"}).exit_code, 2);
}

TEST_F(PlanCommand, FindsTheLargestBlockThatFits) {
  const Json plan = planned({"model=gpt2", "data.block_size=256", "model.n_positions=1024",
                             "train.batch_size=4", "--fit=block_size", "--memory=3GiB"});
  EXPECT_GT(plan.at("block_size"), 128);
  EXPECT_LT(plan.at("block_size"), 1024);
  EXPECT_LE(bytes(plan, "total"), std::int64_t{3} << 30);
}

TEST_F(PlanCommand, SaysWhichSizesTrainingWillChoose) {
  const std::vector<std::string> automatic = {"~train.batch_size", "train.auto_batch=true",
                                              "~data.block_size", "train.auto_block_size=true",
                                              "model.n_positions=256"};
  const std::string notes = planned(automatic).at("notes").dump();
  EXPECT_NE(notes.find("training will choose train.batch_size"), std::string::npos) << notes;
  EXPECT_NE(notes.find("this plan has 256; --fit block_size"), std::string::npos) << notes;
  std::vector<std::string> fitted = automatic;
  fitted.insert(fitted.end(), {"--fit=batch_size", "--memory=1GiB"});
  const std::string fitted_notes = planned(fitted).at("notes").dump();
  EXPECT_EQ(fitted_notes.find("--fit batch_size"), std::string::npos) << fitted_notes;
  EXPECT_NE(fitted_notes.find("rounds down"), std::string::npos) << fitted_notes;
}

TEST_F(PlanCommand, PrintsTheScheduleAndDrawsIt) {
  const RunFolder folder;
  RunOptions options;
  options.working_folder = folder.path();
  options.arguments = {"plan",         "quickstart", "--schedule", "parallel.strategy=full_shard",
                       "--world-size", "2",          "--svg",      "step.svg"};
  const RunResult result = run_program(options);
  ASSERT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_NE(result.out.find("\nschedule\nGather embedding micro_batch 0\n"), std::string::npos)
      << result.describe();
  EXPECT_NE(result.out.find("\nReduceScatter embedding"), std::string::npos);
  const std::string picture = folder.read("step.svg");
  EXPECT_TRUE(picture.starts_with("<svg ")) << picture.substr(0, 100);
  for (const char* part : {"Forward h.3", "ReduceScatter h.0", "shard group", "nominal rates"}) {
    EXPECT_NE(picture.find(part), std::string::npos) << part;
  }
}

TEST_F(PlanCommand, SaysWhatItAssumes) {
  const RunResult result =
      run_tessera({"plan", "shakespeare-char", "precision.compute=auto", "--device=cuda"});
  ASSERT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_NE(result.out.find("50257 is assumed"), std::string::npos) << result.describe();
  EXPECT_NE(result.out.find("bf16 is assumed"), std::string::npos) << result.describe();
}

}  // namespace
}  // namespace tessera::testing
