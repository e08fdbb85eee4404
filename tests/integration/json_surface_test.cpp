// The lines that scripts read: each event's fields and what they mean; what --dry-run says.
#include <algorithm>
#include <cmath>

#include "integration/tiny_run.h"

namespace tessera::testing {
namespace {

std::vector<std::string> keys(const Json& object) {
  std::vector<std::string> names;
  for (const auto& [key, value] : object.items()) names.push_back(key);
  std::sort(names.begin(), names.end());
  return names;
}

using Names = std::vector<std::string>;

class JsonSurface : public TinyRun {};

TEST_F(JsonSurface, EveryEventHasItsFields) {
  const std::vector<Json> lines = trained("surface", {"train.max_steps=13", "log.every=2"});
  EXPECT_EQ(lines.front().at("event"), "start");
  EXPECT_EQ(keys(lines.front()),
            (Names{"dir", "event", "global_batch_size", "parameters", "resumed_from_step", "run",
                   "trainable_parameters", "world_size"}));
  for (const Json& event : events(lines, "step")) {
    EXPECT_EQ(keys(event), (Names{"epoch", "event", "grad_norm", "loss", "lr", "memory_bytes",
                                  "mfu", "seconds", "step", "tokens", "tokens_per_second"}));
  }
  for (const Json& event : events(lines, "eval"))
    EXPECT_EQ(keys(event), (Names{"accuracy", "event", "loss", "perplexity", "step"}));
  for (const Json& event : events(lines, "checkpoint"))
    EXPECT_EQ(keys(event), (Names{"event", "path", "step"}));
  EXPECT_EQ(lines.back().at("event"), "end");
  EXPECT_EQ(keys(lines.back()),
            (Names{"best_eval_loss", "event", "loss", "model", "status", "step"}));
  for (const Json& line : lines) {
    const std::string event = line.at("event");
    EXPECT_TRUE(event == "start" || event == "step" || event == "eval" || event == "checkpoint" ||
                event == "end");
  }
  EXPECT_EQ(metrics("surface"), lines);  // the file has the same lines
}

TEST_F(JsonSurface, StartSaysWhatIsTrained) {
  const std::vector<Json> lines = trained("start", {"train.max_steps=1"});
  const Json& start = lines.front();
  EXPECT_EQ(start.at("run"), "start");
  EXPECT_EQ(start.at("dir"), run("start").string());
  // Two blocks of 12 n_embd² + 13 n_embd, the last norm, 257 tokens and 32 positions; the head is
  // the embedding.
  const int parameters = 2 * (12 * 32 * 32 + 13 * 32) + 2 * 32 + 257 * 32 + 32 * 32;
  EXPECT_EQ(start.at("parameters"), parameters);
  EXPECT_EQ(start.at("trainable_parameters"), parameters);
  EXPECT_EQ(start.at("world_size"), 1);
  EXPECT_EQ(start.at("global_batch_size"), 12);
  EXPECT_TRUE(start.at("resumed_from_step").is_null());
  const std::vector<Json> untied = trained("untied", {"train.max_steps=1", "model.tie_head=false"});
  EXPECT_EQ(untied.front().at("parameters"), parameters + 257 * 32);
}

TEST_F(JsonSurface, StepsCountUpdates) {
  const std::vector<Json> lines =
      trained("steps", {"log.every=2", "optim.schedule=linear", "optim.min_lr=0"});
  const std::vector<Json> steps = events(lines, "step");
  ASSERT_EQ(steps.size(), 20U);
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const int step = static_cast<int>(2 * (i + 1));
    EXPECT_EQ(steps[i].at("step"), step);
    // Warm-up over 5 steps to the peak, then linearly to 0 at step 40.
    const double lr = step <= 5 ? 2e-3 * step / 5 : 2e-3 * (40 - step) / 35;
    EXPECT_NEAR(steps[i].at("lr").get<double>(), lr, 1e-12) << step;
    EXPECT_GT(steps[i].at("grad_norm").get<double>(), 0);
    EXPECT_GT(steps[i].at("tokens_per_second").get<double>(), 0);
    EXPECT_GT(steps[i].at("seconds").get<double>(), 0);
    const double mfu = steps[i].at("mfu");
    EXPECT_GE(mfu, 0);
    EXPECT_LE(mfu, 1);
  }
  EXPECT_NEAR(steps.front().at("loss").get<double>(), std::log(257.0),
              0.2);  // near chance before much is learned
  EXPECT_EQ(steps.front().at("tokens"), 2 * 12 * 32);
  const int epoch_steps =
      static_cast<int>(std::lround(2.0 / steps.front().at("epoch").get<double>()));
  EXPECT_GT(epoch_steps, 5);
  for (const Json& evaluation : events(lines, "eval")) {
    const double loss = evaluation.at("loss");
    EXPECT_DOUBLE_EQ(evaluation.at("perplexity").get<double>(), std::exp(loss));
    EXPECT_EQ(evaluation.at("step").get<int>() % 5, 0);
    EXPECT_GE(evaluation.at("accuracy").get<double>(), 0);
    EXPECT_LE(evaluation.at("accuracy").get<double>(), 1);
  }
  for (const Json& saved : events(lines, "checkpoint"))
    EXPECT_EQ(saved.at("path"), checkpoint("steps", saved.at("step")).string());
  double best = 1e9;
  for (const auto& [step, loss] : values(lines, "eval", "loss")) best = std::min(best, loss);
  const Json& end = lines.back();
  EXPECT_EQ(end.at("status"), "done");
  EXPECT_EQ(end.at("step"), 40);
  EXPECT_EQ(end.at("loss"), steps.back().at("loss"));
  EXPECT_EQ(end.at("best_eval_loss"), best);
  EXPECT_TRUE(
      std::filesystem::exists(Path(end.at("model").get<std::string>()) / "model.safetensors"));
}

TEST_F(JsonSurface, LossIsBeforeTheUpdate) {
  // At a rate of nearly nothing the first step and the second see the same model: chance, without
  // dropout.
  const std::vector<Json> still =
      trained("still", {"train.max_steps=1", "optim.lr=0", "optim.min_lr=0"});
  const std::vector<Json> moved =
      trained("moved", {"train.max_steps=1", "optim.lr=0.1", "optim.warmup=0"});
  EXPECT_EQ(last_event(still, "step").at("loss"), last_event(moved, "step").at("loss"));
  EXPECT_NE(last_event(still, "eval").at("loss"), last_event(moved, "eval").at("loss"));
}

TEST_F(JsonSurface, EarlyStop) {
  const std::vector<Json> lines = trained("early", {"train.early_stopping_patience=2", "optim.lr=0",
                                                    "optim.min_lr=0", "train.eval_every=2"});
  EXPECT_EQ(lines.back().at("status"), "early_stopped");
  EXPECT_EQ(lines.back().at("step"), 6);  // one good evaluation, two no better
}

TEST_F(JsonSurface, WithoutJsonTheOutputIsEmpty) {
  RunOptions options = train_command("plain", {"train.max_steps=3"});
  std::erase(options.arguments, "--json");
  const RunResult result = run_program(options);
  EXPECT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_EQ(result.out, "");
  EXPECT_NE(result.err.find("step 3/3 | loss "), std::string::npos) << result.err;
  EXPECT_NE(result.err.find("eval step 3 | loss "), std::string::npos) << result.err;
}

TEST_F(JsonSurface, DryRunOfLargeModelsTakesNoMemory) {
  if (kSanitized) GTEST_SKIP() << "sanitizers reserve more address space than the limit";
  struct Large {
    const char* preset;
    std::int64_t parameters;
  };
  for (const Large& large : {Large{"gpt2-30b", 29'974'418'432}, Large{"gpt2-xl", 1'557'611'200}}) {
    RunOptions options = train_command("large", {std::string("model.preset=") + large.preset,
                                                 "model.vocab_size=50257", "--dry-run"});
    options.address_space_bytes = std::size_t{3} << 30;  // less than the smaller one's weights
    const RunResult result = run_program(options);
    ASSERT_EQ(result.exit_code, 0) << result.describe();
    EXPECT_LT(result.elapsed, std::chrono::seconds(20));
    const std::vector<Json> lines = parse_json_lines(result.out);
    ASSERT_EQ(lines.size(), 1U);
    EXPECT_EQ(lines[0].at("parameters"), large.parameters);
    std::int64_t sum = 0;
    for (const Json& unit : lines[0].at("units")) sum += unit.at("parameters").get<std::int64_t>();
    EXPECT_EQ(sum, large.parameters);
    EXPECT_GT(lines[0].at("memory_bytes").at("total").get<std::int64_t>(), 16 * large.parameters);
    EXPECT_FALSE(std::filesystem::exists(run("large")));
  }
}

TEST_F(JsonSurface, SizesOfADryRunArePredictedForTheRanksOfTheHost) {
  if (kSanitized) GTEST_SKIP() << "sanitizers reserve more address space than the limit";
  RunOptions options = train_command(
      "large", {"model.preset=gpt2-30b", "model.vocab_size=50257", "~train.batch_size",
                "~train.global_batch_size", "train.auto_batch=true", "--dry-run"});
  options.address_space_bytes = std::size_t{3} << 30;
  const RunResult large = run_program(options);
  EXPECT_EQ(large.exit_code, 6) << large.describe();
  EXPECT_LT(large.elapsed, std::chrono::seconds(20));
  EXPECT_NE(large.last_error_line().find("train.auto_batch"), std::string::npos)
      << large.describe();

  // What a rank may take, as the line says it: a fourth for each of four.
  const auto may_take = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {"~train.batch_size", "train.global_batch_size=8",
                                       "train.auto_batch=true", "--dry-run"});
    const RunResult result = run_program(train_command("sizes", arguments));
    EXPECT_EQ(result.exit_code, 0) << result.describe();
    EXPECT_NE(result.err.find("predicted: a real start runs a step"), std::string::npos);
    const std::string before = "tensors of a rank may take ";
    const auto at = result.err.find(before);
    if (at == std::string::npos) return 0.0;
    std::size_t digits = 0;
    const std::string amount = result.err.substr(at + before.size());
    const double number = std::stod(amount, &digits);
    return number * (amount.compare(digits, 3, "GiB") == 0 ? 1024 : 1);  // in MiB
  };
  EXPECT_LT(may_take({"--nproc", "4"}), may_take({}) / 2);
}

}  // namespace
}  // namespace tessera::testing
