// A run that was stopped, killed, extended or forked is the run that was not.
#include <signal.h>

#include <random>
#include <thread>

#include "integration/tiny_run.h"

namespace tessera::testing {
namespace {

using std::chrono::milliseconds;

std::string step_line(int step) {
  return "{\"event\":\"step\",\"step\":" + std::to_string(step) + ",";
}

class Resume : public TinyRun {};

TEST_F(Resume, KilledTenTimesIsAsNeverStopped) {
  trained("whole");
  std::mt19937 random(20240229);
  std::uniform_int_distribution<int> later(0, 25'000);
  int kills = 0;
  for (const int step : {2, 5, 7, 11, 16, 20, 23, 29, 33, 39}) {
    BackgroundProgram program(train_command("killed"));
    ASSERT_TRUE(program.wait_for_output(step_line(step), milliseconds(60'000)))
        << program.wait().describe();
    std::this_thread::sleep_for(std::chrono::microseconds(later(random)));
    program.send_signal(SIGKILL);
    kills += program.wait().signal == SIGKILL ? 1 : 0;
  }
  EXPECT_GE(kills, 9);  // the last may come too late
  const std::vector<Json> last = trained("killed");
  EXPECT_EQ(last_event(last, "end").at("status"), "done");

  expect_same_state(checkpoint("whole", 40), checkpoint("killed", 40));
  const std::vector<Json> whole = metrics("whole"), killed = metrics("killed");
  EXPECT_EQ(values(whole, "step", "loss").size(), 40U);
  for (const char* key : {"loss", "grad_norm", "lr", "tokens", "epoch"}) {
    EXPECT_EQ(values(killed, "step", key), values(whole, "step", key)) << key;
  }
  EXPECT_EQ(values(killed, "eval", "loss"), values(whole, "eval", "loss"));
  EXPECT_GT(values(whole, "step", "epoch").rbegin()->second, 2.0);  // epochs were crossed
}

TEST_F(Resume, InterruptsSaveAndExitWithTheSignalsCode) {
  trained("whole");
  struct Stop {
    int signal, exit_code, step;
  };
  for (const Stop& stop : {Stop{SIGINT, 130, 8}, Stop{SIGTERM, 143, 19}, Stop{SIGINT, 130, 31}}) {
    BackgroundProgram program(train_command("stopped"));
    ASSERT_TRUE(program.wait_for_output(step_line(stop.step), milliseconds(60'000)))
        << program.wait().describe();
    program.send_signal(stop.signal);
    const RunResult result = program.wait();
    EXPECT_EQ(result.exit_code, stop.exit_code) << result.describe();
    EXPECT_EQ(result.signal, 0);
    const std::vector<Json> lines = parse_json_lines(result.out);
    const Json end = lines.back();
    EXPECT_EQ(end.at("event"), "end");
    EXPECT_EQ(end.at("status"), "interrupted");
    EXPECT_EQ(end.at("exit_code"), stop.exit_code);
    const int saved = end.at("step");
    EXPECT_GE(saved, stop.step);
    EXPECT_EQ(last_event(lines, "checkpoint").at("step"), saved);
    EXPECT_TRUE(std::filesystem::exists(checkpoint("stopped", saved) / "manifest.json"));
    EXPECT_NE(result.err.find("resume    tessera train tiny.yaml"), std::string::npos)
        << result.err;
  }
  trained("stopped");
  expect_same_state(checkpoint("whole", 40), checkpoint("stopped", 40));
  // Nothing was done twice.
  EXPECT_EQ(events(metrics("stopped"), "step").size(), 40U);
}

TEST_F(Resume, UserSignalSavesAndGoesOn) {
  trained("whole");
  BackgroundProgram program(train_command("saved", {"checkpoint.every=0"}));
  ASSERT_TRUE(program.wait_for_output(step_line(7), milliseconds(60'000)));
  program.send_signal(SIGUSR1);
  const RunResult result = program.wait();
  EXPECT_EQ(result.exit_code, 0) << result.describe();
  const std::vector<Json> lines = parse_json_lines(result.out);
  bool asked = false;
  for (const Json& event : events(lines, "checkpoint"))
    asked = asked || (event.at("step").get<int>() % 5 != 0);
  EXPECT_TRUE(asked) << result.out;  // the others are those of better evaluations
  EXPECT_EQ(last_event(lines, "end").at("status"), "done");
  expect_same_state(checkpoint("whole", 40), checkpoint("saved", 40));
}

TEST_F(Resume, SecondInterruptEndsAtOnceUnsaved) {
  // Steps long enough that the second one comes before the first is served.
  BackgroundProgram program(
      train_command("twice", {"train.global_batch_size=1200", "train.eval_every=0"}));
  ASSERT_TRUE(program.wait_for_output(step_line(1), milliseconds(60'000)))
      << program.wait().describe();
  program.send_signal(SIGINT);
  std::this_thread::sleep_for(milliseconds(20));
  program.send_signal(SIGINT);
  const RunResult result = program.wait();
  EXPECT_NE(result.last_error_line().find("not saved"), std::string::npos) << result.describe();
  expect_error(result, 130, {"second signal"});
}

TEST_F(Resume, StoppedInTheLastEvaluationMakesUpForIt) {
  folder_.write("text.txt", sample_text(12'000));
  const std::vector<std::string> settings = {"train.max_steps=2", "train.eval_batches=0",
                                             "data.train_fraction=0.02"};
  BackgroundProgram program(train_command("evaluating", settings));
  ASSERT_TRUE(program.wait_for_output(step_line(2), milliseconds(60'000)))
      << program.wait().describe();
  program.send_signal(SIGINT);
  const RunResult result = program.wait();
  EXPECT_EQ(result.exit_code, 130) << result.describe();
  const std::vector<Json> stopped = parse_json_lines(result.out);
  EXPECT_TRUE(events(stopped, "eval").empty());
  EXPECT_EQ(last_event(stopped, "checkpoint").at("step"), 2);
  const std::vector<Json> lines = trained("evaluating", settings);
  EXPECT_TRUE(events(lines, "step").empty());
  EXPECT_EQ(last_event(lines, "eval").at("step"), 2);
  EXPECT_EQ(last_event(lines, "end").at("best_eval_loss"), last_event(lines, "eval").at("loss"));
}

TEST_F(Resume, MoreStepsThanAtFirst) {
  trained("whole", {"optim.decay_steps=40"});
  trained("longer", {"optim.decay_steps=40", "train.max_steps=20"});
  EXPECT_EQ(checkpoints("longer").back(), "step_00000020");
  const std::vector<Json> lines = trained("longer", {"optim.decay_steps=40"});
  EXPECT_EQ(last_event(lines, "start").at("resumed_from_step"), 20);
  expect_same_state(checkpoint("whole", 40), checkpoint("longer", 40));
  EXPECT_EQ(values(metrics("longer"), "step", "loss"), values(metrics("whole"), "step", "loss"));
}

TEST_F(Resume, MoreEpochsThanAtFirst) {
  const std::vector<Json> one =
      trained("epochs", {"train.max_steps=0", "train.max_epochs=1", "optim.schedule=constant"});
  const std::vector<Json> two =
      trained("epochs", {"train.max_steps=0", "train.max_epochs=2", "optim.schedule=constant"});
  const int first = last_event(one, "end").at("step"), second = last_event(two, "end").at("step");
  EXPECT_EQ(second, 2 * first);
  EXPECT_DOUBLE_EQ(last_event(one, "step").at("epoch"), 1.0);
  EXPECT_DOUBLE_EQ(last_event(two, "step").at("epoch"), 2.0);
  EXPECT_EQ(last_event(two, "start").at("resumed_from_step"), first);
}

TEST_F(Resume, FreshMovesTheOldRunAside) {
  trained("again", {"train.max_steps=6"});
  const std::string old = read_file(checkpoint("again", 6) / "model.safetensors");
  const std::vector<Json> lines = trained("again", {"train.max_steps=3", "--fresh", "run.seed=7"});
  EXPECT_TRUE(last_event(lines, "start").at("resumed_from_step").is_null());
  EXPECT_EQ(checkpoints("again"), std::vector<std::string>{"step_00000003"});
  EXPECT_EQ(events(metrics("again"), "step").size(), 3U);
  const Path aside = folder_ / "runs" / "again.old-1";
  EXPECT_EQ(read_file(aside / "checkpoints/step_00000006/model.safetensors"), old);
  EXPECT_EQ(events(metric_lines(aside / "metrics.jsonl"), "step").size(), 6U);
}

TEST_F(Resume, FreshThatCannotStartLeavesTheOldRun) {
  trained("kept", {"train.max_steps=3"});
  const RunResult result = train("kept", {"--fresh", "data.train=missing.txt"});
  expect_error(result, 3, {"missing.txt"});
  EXPECT_EQ(checkpoints("kept"), std::vector<std::string>{"step_00000003"});
  EXPECT_FALSE(std::filesystem::exists(folder_ / "runs" / "kept.old-1"));
}

TEST_F(Resume, ForksFromACheckpoint) {
  trained("origin", {"train.max_steps=12", "optim.decay_steps=40"});
  const std::string before = read_file(run("origin") / "metrics.jsonl");
  const std::string from = checkpoint("origin", 6).string();
  const std::vector<Json> lines =
      trained("fork", {"train.max_steps=12", "optim.decay_steps=40", "--resume-from", from});
  EXPECT_EQ(last_event(lines, "start").at("resumed_from_step"), 6);
  EXPECT_EQ(last_event(lines, "start").at("run"), "fork");
  expect_same_state(checkpoint("origin", 12), checkpoint("fork", 12));
  EXPECT_EQ(read_file(run("origin") / "metrics.jsonl"), before);
  const RunResult again =
      train("fork", {"train.max_steps=12", "optim.decay_steps=40", "--resume-from", from});
  expect_error(again, 2, {"--resume-from", "already"});
}

TEST_F(Resume, FinishedRunHasNothingToDo) {
  trained("done", {"train.max_steps=6"});
  const auto files = [this] {
    std::map<std::string, std::string> content;
    for (const auto& entry :
         std::filesystem::recursive_directory_iterator(run("done") / "checkpoints")) {
      if (entry.is_regular_file()) content[entry.path().string()] = read_file(entry.path());
    }
    return content;
  };
  const auto before = files();
  const std::vector<Json> lines = trained("done", {"train.max_steps=6"});
  EXPECT_EQ(last_event(lines, "end").at("status"), "done");
  EXPECT_EQ(last_event(lines, "end").at("step"), 6);
  EXPECT_TRUE(events(lines, "step").empty());
  EXPECT_EQ(files(), before);
}

TEST_F(Resume, LastStepIsEvaluatedAndSavedOnce) {
  const std::vector<Json> lines = trained("once", {"train.max_steps=9"});
  int saves = 0, evaluations = 0;
  for (const Json& event : events(lines, "checkpoint")) saves += event.at("step") == 9 ? 1 : 0;
  for (const Json& event : events(lines, "eval")) evaluations += event.at("step") == 9 ? 1 : 0;
  EXPECT_EQ(saves, 1);
  EXPECT_EQ(evaluations, 1);
}

TEST_F(Resume, EvaluationMayBeTurnedOff) {
  BackgroundProgram program(train_command("quiet", {"train.eval_every=1"}));
  ASSERT_TRUE(program.wait_for_output(step_line(4), milliseconds(60'000)));
  program.send_signal(SIGINT);
  EXPECT_EQ(program.wait().exit_code, 130);
  const std::vector<Json> lines = trained("quiet", {"train.eval_every=0", "train.max_steps=10"});
  EXPECT_TRUE(events(lines, "eval").empty());
}

}  // namespace
}  // namespace tessera::testing
