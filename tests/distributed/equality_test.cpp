// Data parallel on real processes gives the training of one process, by the measure of
// docs/distributed.md: every step's loss and every tensor within 1e-5, relative.
#include <cmath>
#include <cstring>

#include "distributed/rank_run.h"

namespace tessera::testing {
namespace {

struct Case {
  const char* name;
  std::vector<std::string> overrides;
};

class DdpEquality : public RankRun, public ::testing::WithParamInterface<Case> {};

// One to four ranks, 20 steps; and each rank count twice, which must give the same bytes.
TEST_P(DdpEquality, AnyNumberOfRanksTrainsAsOne) {
  const auto run_with = [&](const std::string& name, int ranks) {
    std::vector<std::string> more = GetParam().overrides;
    more.insert(more.end(), {"train.max_steps=20", "parallel.check_every=5"});
    return trained_by(ranks, name, more);
  };
  const std::vector<Json> one = run_with("one", 1);
  const Tensors expected = read_tensors(checkpoint("one", 20) / "model.safetensors");
  const auto losses = values(one, "step", "loss");
  ASSERT_EQ(losses.size(), 20U);
  EXPECT_LT(losses.at(20), losses.at(1));
  for (int ranks = 2; ranks <= 4; ++ranks) {
    const std::string name = "ranks" + std::to_string(ranks);
    const std::vector<Json> lines = run_with(name, ranks);
    EXPECT_EQ(last_event(lines, "start").at("world_size"), ranks);
    expect_equal_losses(values(lines, "step", "loss"), losses, name);
    expect_equal_losses(values(lines, "eval", "loss"), values(one, "eval", "loss"), name);
    expect_equal_tensors(read_tensors(checkpoint(name, 20) / "model.safetensors"), expected, name);
  }
  run_with("again", 3);
  expect_same_state(checkpoint("ranks3", 20), checkpoint("again", 20));
}

INSTANTIATE_TEST_SUITE_P(
    Settings, DdpEquality,
    ::testing::Values(
        Case{"Plain", {"train.gradient_accumulation=1", "~train.batch_size", "model.dropout=0"}},
        Case{"Dropout", {"train.gradient_accumulation=1", "~train.batch_size"}},
        Case{"Accumulation",
             {"train.gradient_accumulation=4", "~train.batch_size", "model.dropout=0"}},
        Case{"AccumulationDropoutReducedEachTime",
             {"train.gradient_accumulation=4", "~train.batch_size", "parallel.reduce=each",
              "parallel.bucket_mb=0.01"}},
        // Rows of unequal token counts, and a vocabulary that no rank count divides.
        Case{"UnequalTokensLargeVocabulary",
             {"data.last_block=keep", "data.separator=none", "data.train=[text.txt,short.txt]",
              "data.validation=text.txt", "~data.train_fraction", "model.vocab_size=50257",
              "model.n_embd=16", "model.n_layer=1"}}),
    [](const auto& parameters) { return std::string(parameters.param.name); });

class Ddp : public RankRun {};

// Three ranks, one row of validation a batch at most: two ranks have nothing to evaluate.
TEST_F(Ddp, EvaluatesFewerRowsThanRanks) {
  const std::vector<std::string> few = {"train.max_steps=2", "train.eval_batch_size=1",
                                        "train.eval_every=1"};
  const auto one = values(trained_by(1, "one", few), "eval", "loss");
  const auto three = values(trained_by(3, "three", few), "eval", "loss");
  ASSERT_EQ(one.size(), 2U);
  expect_equal_losses(three, one, "three");
}

// The global batch is the run's: at another number of ranks the same rows come in the same order.
TEST_F(Ddp, GoesOnAtAnotherNumberOfRanks) {
  const std::vector<std::string> short_run = {"train.max_steps=20", "optim.decay_steps=20"};
  trained_by(1, "whole", short_run);
  const auto expected = values(metrics("whole"), "step", "loss");
  int until = 4;
  for (const int ranks : {4, 2, 4, 1, 3}) {
    trained_by(ranks, "moved",
               {"train.max_steps=" + std::to_string(until), "optim.decay_steps=20"});
    until += 4;
  }
  expect_equal_losses(values(metrics("moved"), "step", "loss"), expected, "moved");
  expect_equal_tensors(read_tensors(checkpoint("moved", 20) / "model.safetensors"),
                       read_tensors(checkpoint("whole", 20) / "model.safetensors"), "moved");
}

TEST_F(Ddp, EveryTransportOnOneHostTrainsTheSame) {
  const std::vector<std::string> short_run = {"train.max_steps=4"};
  const auto one = values(trained_by(1, "one", short_run), "step", "loss");
  for (const std::string transport : {"gloo", "shm"}) {
    const auto lines =
        trained_by(2, transport, {"train.max_steps=4", "parallel.transport=" + transport});
    expect_equal_losses(values(lines, "step", "loss"), one, transport);
  }
}

TEST_F(Ddp, EachRankReportsItsOwnLossWhenAsked) {
  RunOptions command = rank_command(2, "spoken", {"train.max_steps=3", "log.ranks=all"});
  const RunResult result = run_program(command);
  EXPECT_EQ(result.exit_code, 0) << result.describe();
  for (const char* text : {"\n[rank 0] step 3 | loss ", "\n[rank 1] step 3 | loss "}) {
    EXPECT_NE(result.err.find(text), std::string::npos) << result.describe();
  }
}

TEST_F(Ddp, ADryRunPlansForTheRanksAndStartsNone) {
  const RunResult result = run_program(rank_command(4, "plan", {"--dry-run", "~train.batch_size"}));
  EXPECT_EQ(result.exit_code, 0) << result.describe();
  const Json plan = last_event(parse_json_lines(result.out), "plan");
  EXPECT_EQ(plan.at("world_size"), 4);
  EXPECT_EQ(plan.at("micro_batches"), 1);
  EXPECT_EQ(plan.at("micro_batch_rows"), 3);
  EXPECT_FALSE(std::filesystem::exists(run("plan")));
}

// 200 saves while three ranks train: nothing hangs, is left over, or grows.
TEST_F(Ddp, SavingEveryStepLeavesNothingBehind) {
  const std::vector<Json> lines =
      trained_by(3, "saves",
                 {"train.max_steps=200", "checkpoint.every=1", "checkpoint.keep=2",
                  "train.eval_every=0", "model.dropout=0", "train.batch_size=4"});
  EXPECT_EQ(events(lines, "checkpoint").size(), 200U);
  for (const std::string& entry : folder_.list(run("saves") / "checkpoints")) {
    EXPECT_TRUE(entry == "step_00000199" || entry == "step_00000200" || entry == ".lock") << entry;
  }
}

}  // namespace
}  // namespace tessera::testing
