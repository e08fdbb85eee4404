// `tessera launch` as its user sees it: exit codes, last lines, signals, restarts, several nodes.
// The ranks are small shell and Python scripts, so that nothing is trained here.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <sstream>
#include <thread>

#include "support/json_lines.h"
#include "support/run_folder.h"
#include "support/run_program.h"

namespace tessera::testing {
namespace {

using Words = std::vector<std::string>;
using std::chrono::milliseconds;
using std::chrono::seconds;

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

bool alive(int process) { return ::kill(process, 0) == 0; }

template <class Condition>
bool eventually(Condition condition, milliseconds limit) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(milliseconds(20));
  }
  return true;
}

// A port that nobody listens on now.
int free_port() {
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ::bind(socket, reinterpret_cast<sockaddr*>(&address), sizeof address);
  socklen_t size = sizeof address;
  ::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size);
  ::close(socket);
  return ntohs(address.sin_port);
}

class LaunchTest : public ::testing::Test {
 protected:
  // Options of launch, then the ranks' shell script.
  RunOptions options(Words words, const std::string& script) const {
    RunOptions result;
    result.arguments = {"launch"};
    result.arguments.insert(result.arguments.end(), words.begin(), words.end());
    for (const std::string& word : Words{"--", "/bin/sh", "-c", script})
      result.arguments.push_back(word);
    result.working_folder = folder_.path();
    result.timeout = seconds(40);
    result.unset = {"OMP_NUM_THREADS", "TESSERA_JOB_SECRET", "RANK", "WORLD_SIZE"};
    return result;
  }
  RunResult launch(const Words& words, const std::string& script) const {
    return run_program(options(words, script));
  }
  // Whole numbers that ranks wrote into files, such as their process ids.
  int number(const std::string& name) const {
    return folder_.exists(name) ? std::atoi(folder_.read(name).c_str()) : 0;
  }
  bool wait_for_files(const Words& names) const {
    return eventually(
        [&] {
          return std::all_of(names.begin(), names.end(),
                             [&](const std::string& name) { return number(name) > 0; });
        },
        seconds(10));
  }
  const RunFolder folder_;
};

TEST_F(LaunchTest, TheEnvironmentOfARankIsComplete) {
  const RunResult result = launch({"--nproc_per_node", "2", "--max-restarts=3"},
                                  "env > env.$RANK; echo $$ $PPID >> env.$RANK");
  ASSERT_EQ(result.exit_code, 0) << result.describe();
  const std::string text = folder_.read("env.1");
  const auto lines = lines_of(text);
  for (const char* expected :
       {"RANK=1", "LOCAL_RANK=1", "WORLD_SIZE=2", "LOCAL_WORLD_SIZE=2", "GROUP_RANK=0",
        "GROUP_WORLD_SIZE=1", "ROLE_RANK=1", "ROLE_WORLD_SIZE=2", "ROLE_NAME=default",
        "MASTER_ADDR=127.0.0.1", "TORCHELASTIC_RESTART_COUNT=0", "TORCHELASTIC_MAX_RESTARTS=3",
        "TORCHELASTIC_USE_AGENT_STORE=True", "TESSERA_LAUNCHER=1", "OMP_WAIT_POLICY=passive"})
    EXPECT_NE(std::find(lines.begin(), lines.end(), expected), lines.end()) << expected;
  for (const char* some : {"MASTER_PORT=", "TORCHELASTIC_RUN_ID=", "TORCHELASTIC_ERROR_FILE=",
                           "TESSERA_JOB_SECRET=", "OMP_NUM_THREADS="}) {
    const auto line = std::find_if(lines.begin(), lines.end(),
                                   [&](const auto& l) { return l.starts_with(some); });
    ASSERT_NE(line, lines.end()) << some;
    EXPECT_GT(line->size(), std::string(some).size()) << some;
  }
  EXPECT_TRUE(contains(result.err, "OMP_NUM_THREADS=")) << result.describe();
}

TEST_F(LaunchTest, ExitsWithTheCodeOfTheFailedRankAndEndsTheOthers) {
  const RunResult result =
      launch({"--nproc-per-node", "3"},
             "echo $$ > pid.$RANK; if [ $RANK = 1 ]; then sleep 0.3; exit 7; fi; sleep 100");
  EXPECT_EQ(result.exit_code, 7) << result.describe();
  EXPECT_LT(result.elapsed, seconds(5));
  EXPECT_TRUE(result.last_error_line().starts_with("error: rank 1 (host ")) << result.describe();
  EXPECT_TRUE(contains(result.last_error_line(), "exited with code 7")) << result.describe();
  EXPECT_TRUE(contains(result.err, "Root Cause")) << result.describe();
  for (const char* name : {"pid.0", "pid.2"}) EXPECT_FALSE(alive(number(name))) << name;
}

TEST_F(LaunchTest, ARankKilledBySignalGivesFiveAndTheCauseIsNotItsConsequence) {
  // Rank 0 sees that its peer is gone, as a failed collective does, and is quicker to be noticed.
  const RunResult result =
      launch({"--nproc-per-node", "2"},
             "if [ $RANK = 1 ]; then echo $$ > pid; sleep 0.7; kill -KILL $$; fi;"
             "while [ ! -s pid ]; do sleep 0.05; done; sleep 0.3; exit 5");
  EXPECT_EQ(result.exit_code, 5) << result.describe();
  EXPECT_TRUE(contains(result.last_error_line(), "rank 1 ")) << result.describe();
  EXPECT_TRUE(contains(result.last_error_line(), "SIGKILL")) << result.describe();
  EXPECT_TRUE(contains(result.err, "exitcode  : 5 ")) << result.describe();
}

TEST_F(LaunchTest, AStoppedRankIsKilledWhenAnotherFails) {
  const RunResult result =
      launch({"--nproc-per-node", "2"},
             "if [ $RANK = 1 ]; then echo $$ > pid; kill -STOP $$; fi; sleep 0.5; exit 3");
  EXPECT_EQ(result.exit_code, 3) << result.describe();
  EXPECT_LT(result.elapsed, seconds(12)) << result.describe();
  EXPECT_TRUE(contains(result.last_error_line(), "rank 0 ")) << result.describe();
  EXPECT_FALSE(alive(number("pid")));
}

// Counts the signals that reach each rank, for half a second after the first SIGINT, too.
constexpr const char* kCounting =
    "trap 'echo int >> got.$RANK; [ -e linger ] || stop=1' INT;"
    "trap 'echo usr >> got.$RANK' USR1;"
    "echo $$ > pid.$RANK; while [ -z \"$stop\" ]; do sleep 0.05; done; sleep 0.5; exit 130";

TEST_F(LaunchTest, SignalsReachEveryRankOnce) {
  BackgroundProgram program(options({"--nproc-per-node", "2"}, kCounting));
  ASSERT_TRUE(wait_for_files({"pid.0", "pid.1"}));
  program.send_signal(SIGUSR1);
  ASSERT_TRUE(
      eventually([&] { return folder_.exists("got.0") && folder_.exists("got.1"); }, seconds(5)));
  std::this_thread::sleep_for(milliseconds(200));
  // As a terminal does: to the whole foreground group.
  ::kill(-program.process_id(), SIGINT);
  const RunResult result = program.wait();
  EXPECT_EQ(result.exit_code, 130) << result.describe();
  EXPECT_EQ(folder_.read("got.0"), "usr\nint\n");
  EXPECT_EQ(folder_.read("got.1"), "usr\nint\n");
  EXPECT_FALSE(contains(result.err, "Root Cause")) << result.describe();
}

TEST_F(LaunchTest, ASecondInterruptEndsAllAtOnce) {
  folder_.write("linger", "");
  BackgroundProgram program(options({"--nproc-per-node", "2"}, kCounting));
  ASSERT_TRUE(wait_for_files({"pid.0", "pid.1"}));
  program.send_signal(SIGINT);
  ASSERT_TRUE(
      eventually([&] { return folder_.exists("got.0") && folder_.exists("got.1"); }, seconds(5)));
  const auto start = std::chrono::steady_clock::now();
  program.send_signal(SIGINT);
  const RunResult result = program.wait();
  EXPECT_LT(std::chrono::steady_clock::now() - start, seconds(3));
  EXPECT_EQ(result.exit_code, 130) << result.describe();
  EXPECT_TRUE(contains(result.last_error_line(), "not saved")) << result.describe();
  EXPECT_FALSE(alive(number("pid.0")));
  EXPECT_FALSE(alive(number("pid.1")));
}

TEST_F(LaunchTest, RanksThatDoNotStopInTimeAreKilled) {
  folder_.write("linger", "");
  BackgroundProgram program(options({"--shutdown-timeout", "1"}, kCounting));
  ASSERT_TRUE(wait_for_files({"pid.0"}));
  program.send_signal(SIGINT);
  const RunResult result = program.wait();
  EXPECT_EQ(result.exit_code, 130) << result.describe();
  EXPECT_TRUE(contains(result.err, "was killed: not saved")) << result.describe();
}

TEST_F(LaunchTest, ARankThatStopsByItselfLetsTheOthersSave) {
  const RunResult result =
      launch({"--nproc-per-node", "2"},
             "trap 'echo term > got.$RANK' TERM; sleep 0.3; [ $RANK = 0 ] || sleep 1; exit 143");
  EXPECT_EQ(result.exit_code, 143) << result.describe();
  EXPECT_FALSE(folder_.exists("got.1")) << "the launcher disturbed a rank that was saving";
}

TEST_F(LaunchTest, RestartsAllRanksWithinTheBudget) {
  const RunResult result =
      launch({"--nproc-per-node", "2", "--max-restarts", "2"},
             "echo $TORCHELASTIC_RESTART_COUNT >> seen.$RANK; sleep 0.2;"
             "[ $TORCHELASTIC_RESTART_COUNT = 1 ] || [ $RANK = 0 ] || exit 9; sleep 0.3");
  EXPECT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_EQ(folder_.read("seen.0"), "0\n1\n");
  EXPECT_EQ(folder_.read("seen.1"), "0\n1\n");
  EXPECT_TRUE(contains(result.err, "exited with code 9 (pid ")) << result.describe();
  EXPECT_TRUE(contains(result.err, "restart 1 of 2 in 1 s")) << result.describe();
}

TEST_F(LaunchTest, EndsWhenTheBudgetIsUsed) {
  const RunResult result = launch({"--max-restarts", "1"}, "echo x >> tries; exit 9");
  EXPECT_EQ(result.exit_code, 9) << result.describe();
  EXPECT_EQ(folder_.read("tries"), "x\nx\n");
  EXPECT_TRUE(contains(result.last_error_line(), "all 1 restarts are used")) << result.describe();
}

TEST_F(LaunchTest, AConfigErrorIsNotRestarted) {
  const RunResult result = launch({"--max-restarts", "5"}, "echo x >> tries; exit 2");
  EXPECT_EQ(result.exit_code, 2) << result.describe();
  EXPECT_EQ(folder_.read("tries"), "x\n");
  EXPECT_TRUE(contains(result.last_error_line(), "would fail again")) << result.describe();
}

TEST_F(LaunchTest, TeeShowsWholeLinesWithTheirRank) {
  const RunResult result =
      launch({"--nproc-per-node", "3", "--tee", "3"},
             "for i in 1 2 3 4 5 6 7 8 9; do for j in a b c d e f; do "
             "printf %s-$RANK-first; printf ' second-%s\\n' $RANK; done; done");
  ASSERT_EQ(result.exit_code, 0) << result.describe();
  const auto lines = lines_of(result.out);
  EXPECT_EQ(lines.size(), 3u * 54u);
  for (const std::string& line : lines) {
    const std::string rank = line.substr(6, 1);
    ASSERT_EQ(line, "[rank " + rank + "] -" + rank + "-first second-" + rank);
  }
}

TEST_F(LaunchTest, OutputIsInheritedFilteredAndRedirected) {
  const std::string script = "echo out $RANK; echo err $RANK >&2";
  RunResult result = launch({"--nproc-per-node", "2"}, script);
  EXPECT_TRUE(contains(result.out, "out 0\n") && contains(result.out, "out 1\n"));
  result = launch({"--nproc-per-node", "2", "--local-ranks-filter", "1"}, script);
  EXPECT_EQ(result.out, "out 1\n") << result.describe();
  result =
      launch({"--nproc-per-node", "2", "--log-dir", "logs", "--rdzv-id", "my job", "-r", "0:3,1:1"},
             script);
  EXPECT_EQ(result.out, "") << result.describe();
  EXPECT_TRUE(contains(result.err, "err 1\n")) << result.describe();
  const auto runs = folder_.list("logs");
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_TRUE(runs[0].starts_with("my_job_")) << runs[0];
  const std::string attempt = "logs/" + runs[0] + "/attempt_0/";
  EXPECT_EQ(folder_.read(attempt + "0/stdout.log"), "out 0\n");
  EXPECT_EQ(folder_.read(attempt + "0/stderr.log"), "err 0\n");
  EXPECT_EQ(folder_.read(attempt + "1/stdout.log"), "out 1\n");
  EXPECT_FALSE(folder_.exists(attempt + "1/stderr.log"));
}

TEST_F(LaunchTest, TheSummaryTellsTheRanksOwnMessage) {
  const RunResult result =
      launch({"--log-dir", "logs"},
             "printf '{\"message\":{\"message\":\"RuntimeError: out of luck\",\"extraInfo\":"
             "{\"timestamp\":\"1\"}}}' > $TORCHELASTIC_ERROR_FILE; exit 1");
  EXPECT_EQ(result.exit_code, 1) << result.describe();
  EXPECT_TRUE(contains(result.last_error_line(), "exited with code 1: RuntimeError: out of luck"))
      << result.describe();
  EXPECT_TRUE(contains(result.err, "/attempt_0/0/error.json")) << result.describe();
}

// What a rank's script has started, too.
TEST_F(LaunchTest, NoRankOutlivesAKilledAgent) {
  BackgroundProgram program(options(
      {"--nproc-per-node", "2"}, "sleep 300 & echo $! > child.$RANK; echo $$ > pid.$RANK; wait"));
  ASSERT_TRUE(wait_for_files({"pid.0", "pid.1", "child.0", "child.1"}));
  program.send_signal(SIGKILL);
  for (const char* name : {"pid.0", "pid.1", "child.0", "child.1"})
    EXPECT_TRUE(eventually([&] { return !alive(number(name)); }, seconds(5))) << name;
}

TEST_F(LaunchTest, BadCommandLinesAreUsageErrors) {
  const std::pair<Words, const char*> cases[] = {
      {{"launch"}, "missing"},
      {{"launch", "no-such-program"}, "PATH"},
      {{"launch", "none.py"}, "no script"},
      {{"launch", "--nproc-per-node", "0", "true"}, "--nproc-per-node"},
      {{"launch", "--rdzv-backend", "etcd-v2", "true"}, "etcd-v2"},
      {{"launch", "--nnodes", "2", "true"}, "--rdzv-endpoint"},
      {{"launch", "--nnodes", "2", "--rdzv-backend", "static", "--master-addr", "a", "true"},
       "--node-rank"},
      {{"launch", "--nnodes", "2", "--standalone", "true"}, "--standalone"},
      {{"launch", "--numa-binding", "socket", "true"}, "--numa-binding"},
      {{"launch", "--nprocs", "2", "true"}, "--nprocs"},
      {{"launch", "-m", "--no-python", "true"}, "--no-python"},
      {{"train", "quickstart", "--nproc", "no"}, "--nproc"}};
  for (const auto& [words, expected] : cases) {
    const RunResult result = run_tessera(words);
    EXPECT_EQ(result.exit_code, 2) << words.back() << result.describe();
    EXPECT_TRUE(contains(result.last_error_line(), expected)) << expected << result.describe();
  }
  const std::string text = folder_.write("text", "no program").string();
  std::filesystem::permissions(text, std::filesystem::perms::owner_all);
  const RunResult result = run_tessera({"launch", text});
  EXPECT_EQ(result.exit_code, 2) << result.describe();
  EXPECT_TRUE(contains(result.last_error_line(), "cannot be executed")) << result.describe();
}

TEST_F(LaunchTest, TrainChecksTheConfigOnceAndRefusesRanksInsideRanks) {
  RunResult result = run_tessera({"train", "quickstart", "--nproc", "2", "optim.lrr=1"});
  EXPECT_EQ(result.exit_code, 2) << result.describe();
  EXPECT_EQ(lines_of(result.err).size(), 1u) << result.describe();
  RunOptions inside;
  inside.arguments = {"train", "quickstart", "--nproc", "2"};
  inside.environment = {
      {"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "1"}};
  result = run_program(inside);
  EXPECT_EQ(result.exit_code, 2) << result.describe();
  EXPECT_TRUE(contains(result.last_error_line(), "--nproc")) << result.describe();
  result = run_tessera({"train", "quickstart", "--nproc", "2", "--cfg"});
  EXPECT_EQ(result.exit_code, 0) << result.describe();
}

TEST_F(LaunchTest, ACommandOfTesseraIsThisProgram) {
  const RunResult result = run_tessera({"launch", "--tee", "1", "--", "config", "ls"});
  EXPECT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_TRUE(contains(result.out, "[rank 0] ") && contains(result.out, "quickstart"))
      << result.describe();
}

// Two "nodes" of this machine: the addresses 127.0.0.1 and 127.0.0.2.
class LaunchNodesTest : public LaunchTest {
 protected:
  RunOptions node(const std::string& nodes, const std::string& address, const std::string& script,
                  Words more = {}) const {
    Words words = {"--nnodes",         nodes,
                   "--nproc-per-node", "2",
                   "--rdzv-endpoint",  endpoint_,
                   "--local-addr",     address,
                   "--rdzv-id",        "two",
                   "--rdzv-conf",      "join_timeout=10,last_call_timeout=0.5,heartbeat_timeout=2"};
    words.insert(words.end(), more.begin(), more.end());
    return options(words, script);
  }
  const std::string endpoint_ = "127.0.0.1:" + std::to_string(free_port());
};

TEST_F(LaunchNodesTest, RanksAreNumberedOverNodes) {
  const std::string script = "echo $GROUP_RANK $LOCAL_RANK $WORLD_SIZE > rank.$RANK; sleep 0.2";
  BackgroundProgram second(node("2", "127.0.0.2", script));
  BackgroundProgram first(node("2", "127.0.0.1", script));
  const RunResult results[] = {first.wait(), second.wait()};
  for (const RunResult& result : results) EXPECT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_EQ(folder_.read("rank.0"), "0 0 4\n");
  EXPECT_EQ(folder_.read("rank.1"), "0 1 4\n");
  EXPECT_EQ(folder_.read("rank.2"), "1 0 4\n");
  EXPECT_EQ(folder_.read("rank.3"), "1 1 4\n");
}

TEST_F(LaunchNodesTest, AFailureOnOneNodeEndsAllWithTheSameWords) {
  const std::string script = "[ $RANK = 3 ] && { sleep 0.5; exit 7; }; sleep 100";
  BackgroundProgram second(node("2", "127.0.0.2", script));
  BackgroundProgram first(node("2", "127.0.0.1", script));
  const RunResult results[] = {first.wait(), second.wait()};
  for (const RunResult& result : results) {
    EXPECT_EQ(result.exit_code, 7) << result.describe();
    EXPECT_LT(result.elapsed, seconds(6)) << result.describe();
  }
  EXPECT_EQ(results[0].last_error_line(), results[1].last_error_line());
  EXPECT_TRUE(results[0].last_error_line().starts_with("error: rank 3 (host 127.0.0.2) "))
      << results[0].describe();
}

TEST_F(LaunchNodesTest, AStopReachesTheRanksOfAllNodes) {
  BackgroundProgram second(node("2", "127.0.0.2", kCounting));
  BackgroundProgram first(node("2", "127.0.0.1", kCounting));
  ASSERT_TRUE(wait_for_files({"pid.0", "pid.1", "pid.2", "pid.3"}));
  first.send_signal(SIGINT);
  const RunResult results[] = {first.wait(), second.wait()};
  for (const RunResult& result : results) EXPECT_EQ(result.exit_code, 130) << result.describe();
  for (const char* name : {"got.0", "got.1", "got.2", "got.3"})
    EXPECT_EQ(folder_.read(name), "int\n") << name;
}

constexpr const char* kUntilAlone =
    "echo $$ > pid.$WORLD_SIZE.$RANK; [ $WORLD_SIZE = 2 ] && exit 0; sleep 100";

TEST_F(LaunchNodesTest, GoesOnWithTheNodesThatAreLeft) {
  const Words budget = {"--max-restarts", "1"};
  BackgroundProgram first(node("1:2", "127.0.0.1", kUntilAlone, budget));
  BackgroundProgram second(node("1:2", "127.0.0.2", kUntilAlone, budget));
  ASSERT_TRUE(wait_for_files({"pid.4.0", "pid.4.1", "pid.4.2", "pid.4.3"}));
  const auto start = std::chrono::steady_clock::now();
  second.send_signal(SIGKILL);
  const RunResult result = first.wait();
  EXPECT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_LT(std::chrono::steady_clock::now() - start, seconds(8));
  EXPECT_TRUE(contains(result.err, "host 127.0.0.2) is gone")) << result.describe();
  EXPECT_GT(number("pid.2.0"), 0);
  EXPECT_GT(number("pid.2.1"), 0);
}

TEST_F(LaunchNodesTest, ALostNodeWithoutBudgetEndsTheJobAndNamesIt) {
  BackgroundProgram first(node("2", "127.0.0.1", kUntilAlone));
  BackgroundProgram second(node("2", "127.0.0.2", kUntilAlone));
  ASSERT_TRUE(wait_for_files({"pid.4.0", "pid.4.1", "pid.4.2", "pid.4.3"}));
  second.send_signal(SIGKILL);
  const RunResult result = first.wait();
  EXPECT_EQ(result.exit_code, 5) << result.describe();
  EXPECT_TRUE(contains(result.last_error_line(), "rank 2 (host 127.0.0.2) is gone"))
      << result.describe();
}

TEST_F(LaunchNodesTest, WhenTheHeadGoesTheOthersEndAndNameIt) {
  BackgroundProgram first(node("2", "127.0.0.1", kUntilAlone));
  BackgroundProgram second(node("2", "127.0.0.2", kUntilAlone));
  ASSERT_TRUE(wait_for_files({"pid.4.0", "pid.4.1", "pid.4.2", "pid.4.3"}));
  first.send_signal(SIGKILL);
  const RunResult result = second.wait();
  EXPECT_EQ(result.exit_code, 5) << result.describe();
  EXPECT_LT(result.elapsed, seconds(15));
  EXPECT_TRUE(contains(result.last_error_line(), "host 127.0.0.1) is gone")) << result.describe();
  for (const char* name : {"pid.4.0", "pid.4.1", "pid.4.2", "pid.4.3"})
    EXPECT_TRUE(eventually([&] { return !alive(number(name)); }, seconds(2))) << name;
}

TEST_F(LaunchNodesTest, ANodeThatComesLateIsTakenAtTheNextRestart) {
  const Words budget = {"--max-restarts", "1"};
  const std::string script =
      "echo $$ > pid.$WORLD_SIZE.$RANK; [ $WORLD_SIZE = 4 ] && exit 0;"
      "while [ ! -e fail ]; do sleep 0.05; done; exit 9";
  BackgroundProgram first(node("1:2", "127.0.0.1", script, budget));
  ASSERT_TRUE(wait_for_files({"pid.2.0", "pid.2.1"}));
  BackgroundProgram second(node("1:2", "127.0.0.2", script, budget));
  ASSERT_TRUE(second.wait_for_output("next restart", seconds(10))) << second.err();
  folder_.write("fail", "");
  const RunResult results[] = {first.wait(), second.wait()};
  for (const RunResult& result : results) EXPECT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_GT(number("pid.4.3"), 0);
}

TEST_F(LaunchNodesTest, NodesThatDoNotComeAreMissed) {
  const RunResult result =
      run_program(node("2", "127.0.0.1", "true", {"--rdzv-conf", "join_timeout=1"}));
  EXPECT_EQ(result.exit_code, 5) << result.describe();
  EXPECT_TRUE(contains(result.last_error_line(), "only 1 node of at least 2")) << result.describe();
}

TEST_F(LaunchNodesTest, DifferentSecretsAreNoticed) {
  RunOptions with = node("2", "127.0.0.1", "true");
  with.environment["TESSERA_JOB_SECRET"] = "abc";
  BackgroundProgram first(with);
  const RunResult result = run_program(node("2", "127.0.0.2", "true"));
  EXPECT_EQ(result.exit_code, 2) << result.describe();
  EXPECT_TRUE(contains(result.last_error_line(), "TESSERA_JOB_SECRET")) << result.describe();
}

TEST_F(LaunchTest, PyTorchsOwnClientTalksThroughTheStore) {
  const std::filesystem::path python =
      std::filesystem::path(TESSERA_SOURCE_DIR) / ".venv/bin/python3";
  RunOptions probe;
  probe.program = python;
  probe.arguments = {"-c", "import torch.distributed"};
  if (!std::filesystem::exists(python) || run_program(probe).exit_code != 0)
    GTEST_SKIP() << "no Python with torch in .venv";
  const std::string script = folder_
                                 .write("reduce.py",
                                        "import torch, torch.distributed as dist\n"
                                        "dist.init_process_group('gloo')\n"
                                        "t = torch.tensor([dist.get_rank() + 1.0])\n"
                                        "dist.all_reduce(t)\n"
                                        "print('sum', t.item(), flush=True)\n"
                                        "dist.destroy_process_group()\n")
                                 .string();
  RunOptions run;
  run.arguments = {"launch", "--nproc-per-node", "2", "--tee", "1", "--", python.string(), script};
  const RunResult result = run_program(run);
  EXPECT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_TRUE(contains(result.out, "[rank 0] sum 3.0\n")) << result.describe();
  EXPECT_TRUE(contains(result.out, "[rank 1] sum 3.0\n")) << result.describe();
}

}  // namespace
}  // namespace tessera::testing
