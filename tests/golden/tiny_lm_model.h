// The small byte model of tests/reference/tiny_lm.py as a folder that the program is given, and
// what transformers says of it.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support/json_lines.h"
#include "support/run_folder.h"
#include "support/run_program.h"

namespace tessera::testing {

class TinyLmModel : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!engine_is_built()) GTEST_SKIP() << "this build has no engine (TESSERA_ENGINE=OFF)";
    const Path reference = Path(TESSERA_SOURCE_DIR) / "tests" / "reference";
    expected_ = Json::parse(read_file(reference / "tiny_lm.json"));
    folder_.write("lm/config.json", expected_["config"].dump());
    folder_.write("lm/model.safetensors", read_file(reference / "tiny_lm.safetensors"));
    folder_.write("lm/tessera_tokenizer.json", R"({"kind": "byte", "end_of_text": 256})");
  }

  RunResult run(std::vector<std::string> arguments, const std::string& input = {}) const {
    RunOptions options;
    options.arguments = std::move(arguments);
    options.working_folder = folder_.path();
    options.standard_input = input;
    return run_program(options);
  }

  // The objects that a command with --json prints.
  std::vector<Json> lines(std::vector<std::string> arguments) const {
    arguments.push_back("--json");
    const RunResult result = run(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.describe();
    return parse_json_lines(result.out);
  }

  void expect_failure(const std::vector<std::string>& arguments, int exit_code,
                      const std::string& part) const {
    const RunResult result = run(arguments);
    EXPECT_EQ(result.exit_code, exit_code) << result.describe();
    EXPECT_EQ(result.out, "");
    EXPECT_NE(result.last_error_line().find(part), std::string::npos) << result.err;
    EXPECT_TRUE(result.last_error_line().starts_with("error: ")) << result.err;
  }

  RunFolder folder_;
  Json expected_;
};

}  // namespace tessera::testing
