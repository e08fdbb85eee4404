// `tessera prepare` and what others make of its folders, as scripts use them.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support/run_folder.h"
#include "support/run_program.h"

namespace tessera::testing {
namespace {

class PrepareCommandTest : public ::testing::Test {
 protected:
  RunOptions command(std::vector<std::string> arguments) const {
    RunOptions options;
    options.arguments = std::move(arguments);
    options.environment["TESSERA_CACHE"] = (folder_ / "cache").string();
    options.working_folder = folder_.path();
    return options;
  }
  void expect_failure(const RunResult& result, int code, const std::string& part) const {
    EXPECT_EQ(result.exit_code, code) << result.describe();
    EXPECT_NE(result.last_error_line().find(part), std::string::npos) << result.describe();
  }
  std::vector<std::string> contents() const {
    std::vector<std::string> all;
    for (const char* name : {"train.tok", "validation.tok", "prepare.json"}) {
      all.push_back(folder_.read(std::string("out/") + name));
    }
    return all;
  }
  const RunFolder folder_;
};

TEST_F(PrepareCommandTest, AFullDiskLeavesWhatWasThere) {
  folder_.write("small.txt", std::string(2000, 'a'));
  folder_.write("large.txt", std::string(200'000, 'b'));
  folder_.write("larger.txt", std::string(400'000, 'c'));
  const RunResult first = run_program(command({"prepare", "small.txt", "--out", "out"}));
  ASSERT_EQ(first.exit_code, 0) << first.describe();
  const std::vector<std::string> before = contents();
  // The training part fits, the validation part does not.
  RunOptions full = command({"prepare", "large.txt", "--validation", "larger.txt", "--out", "out"});
  full.file_size_bytes = 600'000;
  const RunResult failed = run_program(full);
  expect_failure(failed, 4, "validation.tok");
  EXPECT_EQ(failed.err.find("replaced"), std::string::npos) << failed.describe();
  EXPECT_EQ(contents(), before);
  EXPECT_EQ(folder_.list("out"),
            (std::vector<std::string>{"prepare.json", "tokenizer", "train.tok", "validation.tok"}));
  full.arguments.back() = "new/out";
  expect_failure(run_program(full), 4, "validation.tok");
  EXPECT_FALSE(folder_.exists("new"));
}

TEST_F(PrepareCommandTest, EvaluateRefusesAFolderThatIsNotWhole) {
  folder_.write("text.txt", std::string(2000, 'a'));
  ASSERT_EQ(run_program(command({"prepare", "text.txt", "--out", "out"})).exit_code, 0);
  std::filesystem::remove(folder_ / "out/prepare.json");
  expect_failure(run_program(command({"evaluate", "model", "--data", "out"})), 4,
                 "out/prepare.json");
}

}  // namespace
}  // namespace tessera::testing
