// Numbers that are not finite, and memory that is not there: exit 6, with what to do.
#include <algorithm>

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

// An overflow by the loss scale is no fault, but it is told.
TEST_F(LimitFaults, AFallOfTheLossScaleIsToldAndNoFault) {
  const RunResult result =
      train("scale", {"precision.compute=f16", "precision.loss_scale=16777216", "log.every=1",
                      "train.non_finite=stop", "train.max_steps=2", "train.eval_every=0"});
  EXPECT_EQ(result.exit_code, 0) << result.describe();
  const std::vector<Json> lines = parse_json_lines(result.out), falls = events(lines, "loss_scale");
  ASSERT_GE(falls.size(), 1U) << result.describe();
  double scale = 16777216;
  for (const Json& fall : falls) {
    scale /= 2;
    EXPECT_EQ(fall.at("loss_scale"), scale);
    EXPECT_TRUE(fall.at("not_finite").get<std::string>().starts_with("gradient")) << fall;
    const std::string line = "loss scale step " + std::to_string(fall.at("step").get<int>()) +
                             " | " + std::to_string(static_cast<std::int64_t>(scale)) +
                             " | the gradient";
    EXPECT_NE(result.err.find(line), std::string::npos) << line << '\n' << result.err;
  }
  EXPECT_EQ(last_event(lines, "step").at("loss_scale"), scale);
}

TEST_F(LimitFaults, ALossThatIsNotFiniteIsNoOverflowOfTheScale) {
  trained("whole", {"train.max_steps=1"});
  const Path source = checkpoint("whole", 1);
  std::string weights = read_file(source / "model.safetensors");
  std::fill(weights.end() - 4096, weights.end(), '\xff');  // that are NaN
  folder_.write("broken/model.safetensors", weights);
  folder_.write("broken/config.json", read_file(source / "config.json"));
  std::vector<std::string> settings = {"model.init_from=broken", "precision.compute=f16",
                                       "train.non_finite=stop"};
  const RunResult stop = train("stop", settings);
  expect_error(stop, 6, {"the loss is not finite"});
  expect_failed_event(stop, 6);
  EXPECT_TRUE(events(parse_json_lines(stop.out), "loss_scale").empty());
  settings.back() = "train.max_skipped=3";
  const RunResult skip = train("skip", settings);
  expect_error(skip, 6, {"the loss is not finite", "after 3 skipped batches in a row"});
  EXPECT_NE(skip.err.find("(3 of at most 3 in a row)"), std::string::npos) << skip.err;
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
