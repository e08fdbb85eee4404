// Streams that nobody reads any more, or that cannot take more.
#include "integration/tiny_run.h"

namespace tessera::testing {
namespace {

class StreamFaults : public TinyRun {
 protected:
  // A shell's line with $T for the program; its exit code is that of the shell.
  RunResult shell(const std::string& line) const {
    RunOptions options = command({"-c", line});
    options.program = "/bin/sh";
    options.environment["T"] = tessera_program().string();
    return run_program(options);
  }
};

TEST_F(StreamFaults, AReaderThatLeavesEndsTheRunQuietlyAndSaved) {
  const RunResult result = shell(
      "{ \"$T\" train tiny.yaml --json run.name=pipe train.max_steps=100000; echo $? > code; } | "
      "head -n 3");
  EXPECT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_EQ(parse_json_lines(result.out).size(), 3U);
  EXPECT_EQ(folder_.read("code"), "143\n");
  EXPECT_EQ(result.err.find("error"), std::string::npos) << result.err;
  const std::vector<Json> lines = metrics("pipe");
  EXPECT_EQ(last_event(lines, "end").at("status"), "interrupted");
  const int step = last_event(lines, "end").at("step");
  EXPECT_EQ(last_event(lines, "checkpoint").at("step"), step);
  EXPECT_TRUE(std::filesystem::exists(checkpoint("pipe", step)));
}

TEST_F(StreamFaults, FullOutputDoesNotCostTheRun) {
  const RunResult result =
      shell("\"$T\" train tiny.yaml --json run.name=full train.max_steps=3 > /dev/full");
  EXPECT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_NE(result.err.find("warning: the JSON output on stdout is switched off"),
            std::string::npos)
      << result.err;
  EXPECT_EQ(last_event(metrics("full"), "end").at("status"), "done");
}

TEST_F(StreamFaults, ClosedStreams) {
  for (const char* closed : {"> /dev/full 2> /dev/full", ">&- 2>&-", "2>&-"}) {
    const std::string name = "closed";
    const RunResult result = shell(
        "\"$T\" train tiny.yaml --json --fresh run.name=closed train.max_steps=3 < /dev/null " +
        std::string(closed));
    EXPECT_EQ(result.exit_code, 0) << closed << result.describe();
    EXPECT_EQ(last_event(metrics(name), "end").at("status"), "done") << closed;
  }
}

TEST_F(StreamFaults, FailureWithAClosedStdoutKeepsItsCode) {
  const RunResult result =
      shell("\"$T\" train tiny.yaml --json run.name=closed data.train=missing.txt > /dev/full");
  expect_error(result, 3, {"missing.txt"});
}

}  // namespace
}  // namespace tessera::testing
