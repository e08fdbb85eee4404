#include <gtest/gtest.h>
#include <signal.h>

#include "support/json_lines.h"
#include "support/run_folder.h"
#include "support/run_program.h"

namespace tessera::testing {
namespace {

using std::chrono::milliseconds;

RunOptions shell(const std::string& script) {
  RunOptions options;
  options.program = "/bin/sh";
  options.arguments = {"-c", script};
  return options;
}

TEST(RunProgramTest, CapturesStreamsAndExitCode) {
  const RunResult result = run_program(shell("echo one; echo two >&2; exit 7"));
  EXPECT_EQ(result.exit_code, 7);
  EXPECT_EQ(result.signal, 0);
  EXPECT_EQ(result.out, "one\n");
  EXPECT_EQ(result.err, "two\n");
  EXPECT_EQ(result.last_error_line(), "two");
  EXPECT_FALSE(result.timed_out);
}

TEST(RunProgramTest, FeedsMoreInputThanAPipeHolds) {
  RunOptions options = shell("cat");
  options.standard_input.assign(1 << 20, 'x');
  EXPECT_EQ(run_program(options).out, options.standard_input);
}

TEST(RunProgramTest, EndsWellWhenTheProgramReadsNoInput) {
  RunOptions options = shell("exec <&-; exit 3");
  options.standard_input.assign(1 << 20, 'x');
  EXPECT_EQ(run_program(options).exit_code, 3);
}

TEST(RunProgramTest, SetsEnvironmentAndWorkingFolder) {
  const RunFolder folder;
  RunOptions options = shell("echo \"$COLOUR-$HOME\"; pwd");
  options.environment["COLOUR"] = "blue";
  options.unset = {"HOME"};
  options.working_folder = folder.path();
  EXPECT_EQ(run_program(options).out, "blue-\n" + folder.path().string() + "\n");
}

TEST(RunProgramTest, KillsAtTheTimeLimitWithItsChildren) {
  RunOptions options = shell("sleep 60 & sleep 60");
  options.timeout = milliseconds(200);
  const RunResult result = run_program(options);
  EXPECT_TRUE(result.timed_out);
  EXPECT_EQ(result.signal, SIGKILL);
  EXPECT_LT(result.elapsed, milliseconds(5000));
}

TEST(RunProgramTest, DoesNotWaitForWhatTheProgramLeftBehind) {
  const RunResult result = run_program(shell("sleep 60 & echo done"));
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.out, "done\n");
  EXPECT_LT(result.elapsed, milliseconds(5000));
}

TEST(RunProgramTest, LimitsFileSize) {
  const RunFolder folder;
  RunOptions options = shell("exec 2>/dev/null; head -c 100000 /dev/zero > big || echo refused");
  options.working_folder = folder.path();
  options.file_size_bytes = 4096;
  EXPECT_EQ(run_program(options).out, "refused\n");
}

TEST(BackgroundProgramTest, TakesSignalsAndShowsOutputAsItComes) {
  BackgroundProgram program(
      shell("trap 'echo caught; exit 9' TERM; echo ready; while :; do sleep 0.02; done"));
  ASSERT_TRUE(program.wait_for_output("ready", milliseconds(5000)));
  EXPECT_FALSE(program.wait_for_output("caught", milliseconds(50)));
  program.send_signal(SIGTERM);
  const RunResult result = program.wait();
  EXPECT_EQ(result.exit_code, 9);
  EXPECT_EQ(result.out, "ready\ncaught\n");
}

TEST(BackgroundProgramTest, DestructionEndsTheProgram) {
  int id = 0;
  {
    BackgroundProgram program(shell("exec sleep 60"));
    id = program.process_id();
    EXPECT_EQ(kill(id, 0), 0);
  }
  EXPECT_NE(kill(id, 0), 0);
}

TEST(BackgroundProgramTest, WaitingForOutputEndsWithTheProgram) {
  BackgroundProgram program(shell("exit 4"));
  EXPECT_FALSE(program.wait_for_output("never", milliseconds(10'000)));
  EXPECT_EQ(program.wait().exit_code, 4);
}

TEST(JsonLinesTest, ParsesAndFindsEvents) {
  const auto lines = parse_json_lines(
      "{\"event\":\"step\",\"step\":1}\n{\"event\":\"end\"}\n{\"event\":\"step\",\"step\":2}\n");
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(events(lines, "step").size(), 2u);
  EXPECT_EQ(last_event(lines, "step")["step"], 2);
  EXPECT_THROW(last_event(lines, "eval"), std::runtime_error);
}

TEST(JsonLinesTest, RefusesWhatIsNotJson) {
  EXPECT_THROW(parse_json_lines("{\"loss\":nan}\n"), std::runtime_error);
  EXPECT_THROW(parse_json_lines("hello\n"), std::runtime_error);
  EXPECT_THROW(parse_json_lines("{}"), std::runtime_error);
  EXPECT_TRUE(parse_json_lines("").empty());
}

TEST(RunFolderTest, FlipsOneBit) {
  const RunFolder folder;
  const Path file = folder.write("a/b.bin", "abc");
  flip_bit(file, -1);
  EXPECT_EQ(folder.read("a/b.bin"), std::string("ab") + static_cast<char>('c' ^ 0x10));
  EXPECT_EQ(folder.list("a"), std::vector<std::string>{"b.bin"});
}

}  // namespace
}  // namespace tessera::testing
