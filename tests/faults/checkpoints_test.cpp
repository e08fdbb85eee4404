// Damaged checkpoints, other settings, a second process: noticed, named, and nothing is lost.
#include <signal.h>

#include "integration/tiny_run.h"

namespace tessera::testing {
namespace {

class CheckpointFaults : public TinyRun {};

TEST_F(CheckpointFaults, AFlippedBitInAnyFileIsNoticedAndTheOlderOneUsed) {
  const std::vector<std::string> settings = {"train.max_steps=6", "train.eval_every=0"};
  trained("good", settings);
  const std::string weights = read_file(checkpoint("good", 6) / "model.safetensors");
  int damaged = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(checkpoint("good", 6))) {
    if (!entry.is_regular_file()) continue;
    const std::string file =
        std::filesystem::relative(entry.path(), checkpoint("good", 6)).string();
    const std::string name = "damaged-" + std::to_string(++damaged);
    std::filesystem::copy(run("good"), run(name), std::filesystem::copy_options::recursive);
    const Path broken = checkpoint(name, 6) / file;
    flip_bit(broken, static_cast<long>(std::filesystem::file_size(broken) / 2));
    const RunResult result = train(name, settings);
    EXPECT_EQ(result.exit_code, 0) << result.describe();
    EXPECT_NE(result.err.find("warning: step_00000006 skipped: " + file), std::string::npos)
        << file << result.err;
    const std::vector<Json> lines = parse_json_lines(result.out);
    EXPECT_EQ(lines.front().at("resumed_from_step"), 3) << file;
    EXPECT_TRUE(read_file(checkpoint(name, 6) / "model.safetensors") == weights) << file;
  }
  EXPECT_GE(damaged, 8);
}

TEST_F(CheckpointFaults, NoneWhole) {
  trained("broken", {"train.max_steps=6"});
  for (const std::string& name : checkpoints("broken")) {
    const Path file = run("broken") / "checkpoints" / name / "model.safetensors";
    std::filesystem::resize_file(file, std::filesystem::file_size(file) - 1);
  }
  const auto before = checkpoints("broken");
  const RunResult resumed = train("broken");
  expect_error(resumed, 4, {"none of", "checkpoints is whole", "model.safetensors", "--fresh"});
  expect_failed_event(resumed, 4);
  EXPECT_EQ(checkpoints("broken"), before);  // nothing is deleted, nothing begun anew
  expect_error(run_program(command({"generate", run("broken").string(), "--prompt", "the"})), 4,
               {"model.safetensors"});
}

TEST_F(CheckpointFaults, MissingFile) {
  trained("missing", {"train.max_steps=6", "train.eval_every=0"});
  std::filesystem::remove(checkpoint("missing", 6) / "optimizer.safetensors");
  const RunResult result = train("missing", {"train.max_steps=6", "train.eval_every=0"});
  EXPECT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_NE(result.err.find("step_00000006 skipped"), std::string::npos) << result.err;
  EXPECT_NE(result.err.find("optimizer.safetensors"), std::string::npos) << result.err;
}

TEST_F(CheckpointFaults, MissingModel) {
  const std::string nowhere = (folder_ / "nowhere").string(),
                    text = (folder_ / "text.txt").string();
  expect_error(run_program(command({"generate", nowhere, "--prompt", "the"})), 4,
               {"no model", nowhere});
  expect_error(run_program(command({"evaluate", nowhere, "--data", text})), 4,
               {"no model", nowhere});
  expect_error(train("fork", {"--resume-from", nowhere}), 4, {"no such checkpoint", nowhere});
  expect_error(train("init", {"model.init_from=" + nowhere, "~model.n_layer", "~model.n_head",
                              "~model.n_embd", "~model.n_positions"}),
               4, {nowhere});
  trained("here", {"train.max_steps=1"});
  expect_error(run_program(command({"evaluate", run("here").string(), "--data", nowhere})), 3,
               {nowhere});
}

TEST_F(CheckpointFaults, OtherSettingsAreRefused) {
  trained("settings", {"train.max_steps=3"});
  const RunResult width = train("settings", {"model.n_embd=64"});
  expect_error(width, 2, {"model.n_embd: 32 -> 64", "--fresh"});
  expect_failed_event(width, 2);
  expect_error(train("settings", {"model.n_layer=3", "run.seed=9"}), 2,
               {"model.n_layer: 2 -> 3", "run.seed"});
  expect_error(train("settings", {"train.global_batch_size=24"}), 2,
               {"train.global_batch_size", "12", "24"});
  const RunResult rate = train("settings", {"optim.lr=1e-3", "train.max_steps=4"});
  EXPECT_EQ(rate.exit_code, 0) << rate.describe();
  EXPECT_NE(rate.err.find("warning: resuming with another value of optim.lr: 0.002 -> 0.001"),
            std::string::npos)
      << rate.err;
  EXPECT_EQ(events(metrics("settings"), "end").size(),
            2U);  // refused starts leave the record alone
  expect_error(train("settings", {"data.tokenizer=char"}), 2,
               {"data.tokenizer", "char", "--fresh"});
}

TEST_F(CheckpointFaults, OneProcessARun) {
  BackgroundProgram first(train_command("shared", {"train.max_steps=100000"}));
  ASSERT_TRUE(first.wait_for_output("{\"event\":\"checkpoint\"", std::chrono::minutes(1)))
      << first.wait().describe();
  for (const std::vector<std::string>& more : {std::vector<std::string>{}, {"--fresh"}}) {
    const RunResult second = train("shared", more);
    expect_error(second, 4, {"another process", run("shared").string(), "run.name"});
    expect_failed_event(second, 4);
  }
  EXPECT_FALSE(std::filesystem::exists(folder_ / "runs" / "shared.old-1"));
  first.send_signal(SIGTERM);
  const RunResult result = first.wait();
  EXPECT_EQ(result.exit_code, 143) << result.describe();
  EXPECT_EQ(metrics("shared"), parse_json_lines(result.out));  // only the first one's
}

TEST_F(CheckpointFaults, HintsGoOnWithTheRun) {
  trained("origin", {"train.max_steps=3"});
  for (const std::vector<std::string>& more :
       {std::vector<std::string>{"--fresh"}, {"--resume-from", checkpoint("origin", 3).string()}}) {
    std::vector<std::string> settings = {"train.max_steps=4"};
    settings.insert(settings.end(), more.begin(), more.end());
    const RunResult result = train("hint" + std::to_string(more.size()), settings);
    EXPECT_EQ(result.exit_code, 0) << result.describe();
    const std::size_t hint = result.err.find("train on  tessera train tiny.yaml");
    ASSERT_NE(hint, std::string::npos) << result.err;
    const std::string hinted = result.err.substr(hint);
    EXPECT_EQ(hinted.find(more.front()), std::string::npos) << hinted;
    EXPECT_EQ(hinted.find("train.max_steps=4"), std::string::npos) << hinted;
    EXPECT_NE(hinted.find(" train.max_steps=8"), std::string::npos) << hinted;
  }
}

}  // namespace
}  // namespace tessera::testing
