// Numbers that are not finite, and memory that is not there: exit 6, with what to do.
#include "integration/tiny_run.h"

namespace tessera::testing {
namespace {

class LimitFaults : public TinyRun {
 protected:
  const std::vector<std::string> diverging_ = {"optim.lr=1000", "optim.warmup=0",
                                               "optim.grad_clip=0", "model.init_std=10",
                                               "train.eval_every=0"};
};

TEST_F(LimitFaults, NotFiniteStops) {
  std::vector<std::string> settings = diverging_;
  settings.push_back("train.non_finite=stop");
  const RunResult result = train("stop", settings);
  expect_error(result, 6, {"not finite", "step ", "optim.lr", "optim.warmup", "optim.grad_clip"});
  expect_failed_event(result, 6);
  EXPECT_EQ(result.err.find("skipped"), std::string::npos);
}

TEST_F(LimitFaults, NotFiniteIsSkippedAFewTimes) {
  std::vector<std::string> settings = diverging_;
  settings.push_back("train.max_skipped=3");
  const RunResult result = train("skip", settings);
  expect_error(result, 6, {"not finite", "after 3 skipped batches in a row"});
  expect_failed_event(result, 6);
  EXPECT_NE(result.err.find("the batch is skipped (3 of at most 3 in a row)"), std::string::npos)
      << result.err;
  // What was saved before is finite: weights that are not are never saved.
  for (const Json& step : events(parse_json_lines(result.out), "step"))
    EXPECT_TRUE(step.at("loss").is_number());
}

TEST_F(LimitFaults, OutOfMemoryNamesWhatHeldItAndTheRemediesInOrder) {
  if (kSanitized) GTEST_SKIP() << "sanitizers reserve more address space than the limit";
  RunOptions options =
      train_command("memory", {"model.n_embd=1024", "model.n_layer=24", "train.max_steps=1"});
  options.address_space_bytes = std::size_t{1250} << 20;
  const RunResult result = run_program(options);
  expect_error(result, 6,
               {"out of memory", "optimizer state", "parameters", "gradients", "activations",
                "In this order: 1) "});
  expect_failed_event(result, 6);
}

TEST_F(LimitFaults, ActivationsOutOfMemory) {
  if (kSanitized) GTEST_SKIP() << "sanitizers reserve more address space than the limit";
  folder_.write("text.txt", sample_text(3000));
  RunOptions options = train_command(
      "batch", {"train.global_batch_size=4000", "train.batch_size=4000", "model.n_layer=12",
                "model.n_embd=64", "train.max_steps=1", "train.eval_every=0"});
  options.address_space_bytes = std::size_t{1250} << 20;
  const RunResult result = run_program(options);
  expect_error(result, 6,
               {"out of memory", "1) train.batch_size=2000 with the same train.global_batch_size"});
  expect_failed_event(result, 6);
  // Activations held most of it, and the first remedy helps.
  EXPECT_NE(result.last_error_line().find(": activations "), std::string::npos)
      << result.last_error_line();
}

}  // namespace
}  // namespace tessera::testing
