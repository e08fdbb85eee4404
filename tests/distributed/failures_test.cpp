// Whatever happens to one rank, all end soon and say which it was; with a restart budget the run is
// the one that nothing happened to.
#include <signal.h>

#include <fstream>
#include <sstream>
#include <thread>

#include "distributed/rank_run.h"

namespace tessera::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// The processes below `root` that have RANK in their environment, by rank.
std::map<int, int> rank_processes(int root) {
  std::map<int, int> found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    std::ifstream stat(entry.path() / "stat"), environ(entry.path() / "environ");
    std::string text((std::istreambuf_iterator<char>(stat)), {});
    const std::size_t after = text.rfind(')');
    if (after == std::string::npos) continue;
    std::istringstream rest(text.substr(after + 1));
    char state = 0;
    int parent = 0;
    rest >> state >> parent;
    if (parent != root || state == 'Z') continue;
    const std::string variables((std::istreambuf_iterator<char>(environ)), {});
    const std::string all = std::string(1, '\0') + variables;
    const std::size_t place = all.find(std::string("\0RANK=", 6));
    if (place != std::string::npos) found[std::stoi(all.substr(place + 6))] = std::stoi(name);
  }
  return found;
}

struct Moment {
  const char* name;
  const char* wait_for;  // of the program's output; empty: as soon as the rank exists
  std::vector<std::string> overrides;
};

const std::vector<Moment> kMoments = {
    {"Start", "", {}},
    {"Training", "{\"event\":\"step\",\"step\":3,", {"train.eval_every=0", "checkpoint.every=0"}},
    {"Checkpoint",
     "{\"event\":\"checkpoint\",\"step\":3,",
     {"train.eval_every=0", "checkpoint.every=1"}},
    {"Evaluation",
     "{\"event\":\"eval\",\"step\":2,",
     {"train.eval_every=1", "train.eval_batches=0", "data.train_fraction=0.2"}}};

class RankFailure : public RankRun {
 protected:
  // Starts three ranks, hits one of them at the moment, and expects all to be over in time.
  void hit(const Moment& moment, int victim, int signal, const std::string& name) {
    SCOPED_TRACE(moment.name + std::string(" rank ") + std::to_string(victim) + " signal " +
                 std::to_string(signal));
    std::vector<std::string> more = moment.overrides;
    more.insert(more.end(),
                {"train.max_steps=100000", "parallel.timeout=6", "parallel.heartbeat_timeout=4"});
    BackgroundProgram program(rank_command(3, name, more));
    if (*moment.wait_for != '\0') {
      ASSERT_TRUE(program.wait_for_output(moment.wait_for, seconds(60)))
          << program.wait().describe();
    }
    std::map<int, int> ranks;
    for (int i = 0; i < 500 && !ranks.contains(victim); ++i) {
      ranks = rank_processes(program.process_id());
      std::this_thread::sleep_for(milliseconds(10));
    }
    ASSERT_TRUE(ranks.contains(victim));
    kill(ranks[victim], signal);
    const auto begin = std::chrono::steady_clock::now();
    const RunResult result = program.wait();
    EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(15)) << result.describe();
    EXPECT_EQ(result.exit_code, 5) << result.describe();
    EXPECT_NE(result.last_error_line().find("rank " + std::to_string(victim)), std::string::npos)
        << result.describe();
    for (const auto& [rank, process] : ranks) {
      EXPECT_NE(kill(process, 0), 0) << "rank " << rank << " is still there";
    }
  }
};

TEST_F(RankFailure, AKilledRankEndsAll) {
  int run = 0;
  for (const Moment& moment : kMoments) {
    for (const int victim : {0, 2}) hit(moment, victim, SIGKILL, "kill" + std::to_string(run++));
  }
}

TEST_F(RankFailure, AStoppedRankEndsAll) {
  int run = 0;
  for (const Moment& moment : kMoments) {
    const int victim = run % 2 == 0 ? 1 : 0;
    hit(moment, victim, SIGSTOP, "stop" + std::to_string(run++));
  }
}

TEST_F(RankFailure, ARestartGoesOnAsIfNothingHadHappened) {
  trained_by(2, "whole");
  RunOptions options = rank_command(2, "restarted");
  options.arguments.insert(options.arguments.end(), {"--max-restarts", "3"});
  BackgroundProgram program(options);
  for (const int step : {7, 19}) {
    ASSERT_TRUE(program.wait_for_output(
        "{\"event\":\"step\",\"step\":" + std::to_string(step) + ",", seconds(60)))
        << program.wait().describe();
    const auto ranks = rank_processes(program.process_id());
    ASSERT_TRUE(ranks.contains(1));
    kill(ranks.at(1), SIGKILL);
  }
  const RunResult result = program.wait();
  EXPECT_EQ(result.exit_code, 0) << result.describe();
  expect_same_state(checkpoint("whole", 40), checkpoint("restarted", 40));
}

// Four ranks, of which a failure takes some; two go on, then four again.
TEST_F(RankFailure, FewerRanksGoOnAndMoreComeBack) {
  const std::vector<std::string> schedule = {"optim.decay_steps=30"};
  trained_by(4, "whole", {"train.max_steps=30", "optim.decay_steps=30"});
  {
    BackgroundProgram program(
        rank_command(4, "elastic", {"train.max_steps=30", "optim.decay_steps=30"}));
    ASSERT_TRUE(program.wait_for_output("{\"event\":\"step\",\"step\":9,", seconds(60)));
    const auto ranks = rank_processes(program.process_id());
    ASSERT_EQ(ranks.size(), 4U);
    kill(ranks.at(1), SIGKILL);
    kill(ranks.at(3), SIGKILL);
    EXPECT_EQ(program.wait().exit_code, 5);
  }
  trained_by(2, "elastic", {"train.max_steps=20", "optim.decay_steps=30"});
  trained_by(4, "elastic", {"train.max_steps=30", "optim.decay_steps=30"});
  expect_equal_losses(values(metrics("elastic"), "step", "loss"),
                      values(metrics("whole"), "step", "loss"), "elastic");
}

// The terminal's Ctrl-C goes to the launcher, which passes it on once.
TEST_F(RankFailure, AnInterruptSavesOnceAndExitsWithItsCode) {
  trained_by(2, "whole");
  BackgroundProgram program(rank_command(2, "stopped"));
  ASSERT_TRUE(program.wait_for_output("{\"event\":\"step\",\"step\":8,", seconds(60)));
  program.send_signal(SIGINT);
  const RunResult result = program.wait();
  EXPECT_EQ(result.exit_code, 130) << result.describe();
  const std::vector<Json> lines = parse_json_lines(result.out);
  const Json end = lines.back();
  EXPECT_EQ(end.at("status"), "interrupted");
  EXPECT_EQ(last_event(lines, "checkpoint").at("step"), end.at("step"));
  trained_by(2, "stopped");
  expect_same_state(checkpoint("whole", 40), checkpoint("stopped", 40));
}

// A failure that one rank alone has: its message is the last line, and its code the program's.
TEST_F(RankFailure, AnErrorOfOneRankIsTheProgramsError) {
  // Not shm: the limit on files holds for shared memory, too.
  RunOptions options = rank_command(3, "full", {"checkpoint.every=1", "parallel.transport=gloo"});
  options.file_size_bytes = 60'000;  // a checkpoint's model is larger
  const RunResult result = run_program(options);
  EXPECT_EQ(result.exit_code, 4) << result.describe();
  EXPECT_NE(result.last_error_line().find("rank 0"), std::string::npos) << result.describe();
  EXPECT_LT(result.elapsed, seconds(30));
}

// Rank `rank` of two, as a user's own script would start it.
RunOptions by_hand(RunOptions options, int rank, int port) {
  options.environment.insert({{"RANK", std::to_string(rank)},
                              {"WORLD_SIZE", "2"},
                              {"LOCAL_RANK", std::to_string(rank)},
                              {"LOCAL_WORLD_SIZE", "2"},
                              {"MASTER_ADDR", "127.0.0.1"},
                              {"MASTER_PORT", std::to_string(port)}});
  return options;
}

TEST_F(RankFailure, RanksWithOtherSettingsAreRefused) {
  const int port = 26000 + getpid() % 5000;
  BackgroundProgram first(by_hand(train_command("differ"), 0, port));
  BackgroundProgram second(by_hand(train_command("differ", {"optim.lr=1e-2"}), 1, port));
  for (BackgroundProgram* program : {&first, &second}) {
    const RunResult result = program->wait();
    EXPECT_EQ(result.exit_code, 2) << result.describe();
    EXPECT_NE(result.last_error_line().find(
                  "rank 1 has other settings than rank 0: optim.lr is 0.01 there, 0.002 on rank 0"),
              std::string::npos)
        << result.describe();
  }
}

TEST_F(RankFailure, RanksWithoutALauncherEndTogetherToo) {
  const auto start = [&](int rank, const std::string& port) {
    const RunOptions options = train_command(
        "by_hand",
        {"train.max_steps=100000", "parallel.timeout=6", "parallel.heartbeat_timeout=4"});
    return std::make_unique<BackgroundProgram>(by_hand(options, rank, std::stoi(port)));
  };
  int port = 21000 + getpid() % 5000;
  for (const int victim : {0, 1}) {
    for (const int signal : {SIGKILL, SIGSTOP}) {
      SCOPED_TRACE("rank " + std::to_string(victim) + " signal " + std::to_string(signal));
      const std::string at = std::to_string(++port);
      const auto first = start(0, at), second = start(1, at);
      ASSERT_TRUE(first->wait_for_output("{\"event\":\"step\"", seconds(60)));
      BackgroundProgram& hit = victim == 0 ? *first : *second;
      BackgroundProgram& left = victim == 0 ? *second : *first;
      hit.send_signal(signal);
      const auto begin = std::chrono::steady_clock::now();
      const RunResult result = left.wait();
      EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(15));
      EXPECT_EQ(result.exit_code, 5) << result.describe();
      EXPECT_NE(result.last_error_line().find("rank " + std::to_string(victim)), std::string::npos)
          << result.describe();
      hit.send_signal(SIGKILL);
      hit.wait();
      std::filesystem::remove_all(run("by_hand"));
    }
  }
}

}  // namespace
}  // namespace tessera::testing
