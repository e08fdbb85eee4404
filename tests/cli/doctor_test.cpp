// The doctor must work where the rest does not: beside a missing or damaged engine.
#include <gtest/gtest.h>

#include <filesystem>

#include "support/json_lines.h"
#include "support/run_folder.h"
#include "support/run_program.h"

namespace tessera::testing {
namespace {

// A copy of the program alone in a folder.
class DoctorTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directories(folder_ / "bin");
    std::filesystem::copy(tessera_program(), folder_ / "bin/tessera");
  }
  RunResult doctor(std::vector<std::string> arguments) const {
    RunOptions options;
    options.program = folder_ / "bin/tessera";
    options.arguments = {"doctor"};
    options.arguments.insert(options.arguments.end(), arguments.begin(), arguments.end());
    options.working_folder = folder_.path();
    return run_program(options);
  }
  const RunFolder folder_;
};

TEST_F(DoctorTest, NamesAMissingEngineAndTheCommandThatBuildsIt) {
  const RunResult result = doctor({});
  EXPECT_EQ(result.exit_code, 1) << result.describe();
  for (const char* part : {"machine", "processors", "memory", "not built", "make build",
                           "Training is not possible here yet"})
    EXPECT_NE(result.out.find(part), std::string::npos) << part << "\n" << result.describe();
  EXPECT_EQ(result.err, "");
  EXPECT_LT(result.elapsed.count(), 5000);
}

TEST_F(DoctorTest, JsonIsOneObject) {
  const RunResult result = doctor({"--json"});
  EXPECT_EQ(result.exit_code, 1) << result.describe();
  const std::vector<Json> lines = parse_json_lines(result.out);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0]["training_possible"], false);
  EXPECT_EQ(lines[0]["engine"]["works"], false);
  EXPECT_TRUE(lines[0]["engine"]["library"].is_null());
  EXPECT_GE(lines[0]["machine"]["processors"], 1);
  EXPECT_GT(lines[0]["machine"]["memory_bytes"], 1 << 26);
  ASSERT_GE(lines[0]["problems"].size(), 1u);
  EXPECT_EQ(lines[0]["problems"][0]["prevents_training"], true);
}

TEST_F(DoctorTest, SaysWhyADamagedEngineDoesNotLoad) {
  folder_.write("bin/libtessera_engine.so", "not a library");
  const RunResult result = doctor({});
  EXPECT_EQ(result.exit_code, 1) << result.describe();
  EXPECT_NE(result.out.find("does not work"), std::string::npos) << result.describe();
  EXPECT_NE(result.out.find("file too short"), std::string::npos) << result.describe();
}

TEST_F(DoctorTest, ALibraryWithoutTheEntryIsNotAnEngine) {
  std::filesystem::path library;
  for (const char* known :
       {"/lib/x86_64-linux-gnu/libz.so.1", "/usr/lib/x86_64-linux-gnu/libz.so.1"})
    if (std::filesystem::exists(known)) library = known;
  if (library.empty()) GTEST_SKIP() << "no libz.so.1 to stand for another library";
  std::filesystem::copy(std::filesystem::canonical(library), folder_ / "bin/libtessera_engine.so");
  const RunResult result = doctor({"--json"});
  EXPECT_EQ(result.exit_code, 1) << result.describe();
  const Json report = parse_json_lines(result.out).at(0);
  EXPECT_NE(report["engine"]["failure"].get<std::string>().find("tessera_engine"),
            std::string::npos);
}

TEST_F(DoctorTest, TrainIsPossibleWithTheBuiltEngine) {
  if (!engine_is_built()) GTEST_SKIP() << "this build has no engine";
  const RunResult result = run_tessera({"doctor", "--json"});
  EXPECT_EQ(result.exit_code, 0) << result.describe();
  const Json report = parse_json_lines(result.out).at(0);
  EXPECT_EQ(report["training_possible"], true);
  EXPECT_EQ(report["engine"]["works"], true);
  EXPECT_NE(report["engine"]["torch_version"].get<std::string>(), "");
  EXPECT_GE(report["engine"]["threads"], 1);
}

TEST_F(DoctorTest, UnknownOptionsAreUsageErrors) {
  const RunResult result = doctor({"--mesure"});
  EXPECT_EQ(result.exit_code, 2) << result.describe();
  EXPECT_NE(result.last_error_line().find("--measure"), std::string::npos) << result.describe();
}

}  // namespace
}  // namespace tessera::testing
