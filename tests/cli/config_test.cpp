// `tessera config …`, `train --cfg` and what every command has in common: help, exit codes, the
// last line of an error.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "support/run_folder.h"
#include "support/run_program.h"

namespace tessera::testing {
namespace {

RunResult run_in(const RunFolder& folder, std::vector<std::string> arguments) {
  RunOptions options;
  options.arguments = std::move(arguments);
  options.working_folder = folder.path();
  return run_program(options);
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

TEST(ConfigCommand, EveryShippedConfigIsValid) {
  const RunResult list = run_tessera({"config", "ls", "--names"});
  ASSERT_EQ(list.exit_code, 0) << list.describe();
  int configs = 0;
  for (const std::string& name : lines_of(list.out)) {
    EXPECT_EQ(run_tessera({"config", "cat", name}).out.substr(0, 2), "# ") << name;
    if (name.starts_with("model/")) {
      const RunResult result = run_tessera(
          {"config", "validate", "quickstart", "model=" + name.substr(6), "data.block_size=64"});
      EXPECT_EQ(result.exit_code, 0) << result.describe();
      continue;
    }
    const RunResult result = run_tessera({"config", "validate", name});
    EXPECT_EQ(result.exit_code, 0) << result.describe();
    ++configs;
  }
  EXPECT_GE(configs, 4);
}

TEST(ConfigCommand, CopiesWithoutOverwriting) {
  const RunFolder folder;
  EXPECT_EQ(run_in(folder, {"config", "cp", "quickstart", "my.yaml"}).exit_code, 0);
  EXPECT_EQ(folder.read("my.yaml"), run_tessera({"config", "cat", "quickstart"}).out);
  folder.write("my.yaml", "mine\n");
  const RunResult again = run_in(folder, {"config", "cp", "quickstart", "my.yaml"});
  EXPECT_EQ(again.exit_code, 4) << again.describe();
  EXPECT_EQ(folder.read("my.yaml"), "mine\n");
  EXPECT_EQ(run_in(folder, {"config", "cp", "quickstart", "my.yaml", "--force"}).exit_code, 0);
  EXPECT_NE(folder.read("my.yaml"), "mine\n");
}

TEST(ConfigCommand, ReportsAllMistakesAndEndsWithTheCause) {
  const RunFolder folder;
  folder.write("bad.yaml", "model:\n  n_layr: 2\n  preset: tiny\noptim:\n  lr: fast\n");
  const RunResult result = run_in(folder, {"config", "validate", "bad.yaml", "train.max_stepz=3"});
  EXPECT_EQ(result.exit_code, 2) << result.describe();
  EXPECT_EQ(result.out, "");
  const std::vector<std::string> lines = lines_of(result.err);
  ASSERT_EQ(lines.size(), 4u) << result.describe();
  EXPECT_EQ(lines[0], "bad.yaml:2:3: model.n_layr: unknown key. Did you mean 'model.n_layer'?");
  EXPECT_EQ(lines[1], "bad.yaml:5:7: optim.lr: must be a number, not 'fast'.");
  EXPECT_EQ(lines[2],
            "override 'train.max_stepz=3': train.max_stepz: unknown key. Did you mean "
            "'train.max_steps'?");
  EXPECT_EQ(lines[3], "error: 3 mistakes in the configuration; the first: " + lines[0]);
}

TEST(ConfigCommand, CfgPrintsAConfigThatGivesItself) {
  const RunFolder folder;
  const RunResult first = run_in(folder, {"train", "quickstart", "optim.lr=0.5", "--cfg"});
  ASSERT_EQ(first.exit_code, 0) << first.describe();
  EXPECT_NE(first.out.find("\n  lr: 0.5  # override 'optim.lr=0.5'\n"), std::string::npos);
  folder.write("printed.yaml", first.out);
  const RunResult second = run_in(folder, {"train", "printed.yaml", "--cfg"});
  ASSERT_EQ(second.exit_code, 0) << second.describe();
  const std::vector<std::string> a = lines_of(first.out), b = lines_of(second.out);
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].substr(0, a[i].find("  # ")), b[i].substr(0, b[i].find("  # ")));
  }
}

TEST(ConfigCommand, PathsAreRelativeToTheFileOrTheWorkingFolder) {
  const RunFolder folder;
  folder.write("configs/a.yaml",
               "model: {preset: tiny}\ntrain: {max_steps: 1}\ndata: {train: x.txt}\n");
  const RunResult result =
      run_in(folder, {"train", "configs/a.yaml", "data.validation=y.txt", "--cfg"});
  ASSERT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_NE(result.out.find("/configs/x.txt"), std::string::npos) << result.out;
  EXPECT_EQ(result.out.find("/configs/y.txt"), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("/y.txt"), std::string::npos) << result.out;
}

TEST(ConfigCommand, DeviceIsAnOverride) {
  EXPECT_NE(
      run_tessera({"train", "quickstart", "--device", "cpu", "--cfg"}).out.find("device: cpu"),
      std::string::npos);
  EXPECT_EQ(run_tessera({"train", "quickstart", "--device", "gpu", "--cfg"}).exit_code, 2);
}

TEST(ConfigCommand, SchemaIsJsonWithEveryGroup) {
  const RunResult result = run_tessera({"config", "schema"});
  ASSERT_EQ(result.exit_code, 0) << result.describe();
  const auto schema = nlohmann::json::parse(result.out);
  for (const char* group :
       {"run", "model", "data", "optim", "train", "parallel", "precision", "checkpoint", "log"}) {
    EXPECT_TRUE(schema["properties"].contains(group)) << group;
  }
}

TEST(ConfigCommand, ReferencePageIsCurrent) {
  const std::string page = std::string(TESSERA_SOURCE_DIR) + "/docs/config.md";
  const RunResult result = run_tessera({"config", "docs", "--check", page});
  EXPECT_EQ(result.exit_code, 0) << result.describe();
  const RunFolder folder;
  folder.write("old.md", "old\n");
  EXPECT_EQ(run_in(folder, {"config", "docs", "--check", "old.md"}).exit_code, 2);
}

TEST(Program, WrongCommandLinesEndWithTwoAndAHint) {
  const struct {
    std::vector<std::string> arguments;
    const char* last_line;
  } kCases[] = {
      {{}, "error: tessera: no command given. See `tessera --help`."},
      {{"trian"}, "error: tessera: unknown command 'trian'. Did you mean 'tessera train'?"},
      {{"config", "lss"},
       "error: tessera config: unknown command 'lss'. Did you mean 'tessera config ls'?"},
      {{"train", "quickstart", "--dryrun"},
       "error: tessera train: unknown option '--dryrun'. Did you mean '--dry-run'? See `tessera "
       "train --help`."},
      {{"config", "cat", "quikstart"},
       "error: no config 'quikstart': there is neither such a file nor a shipped config of that "
       "name. Did you mean 'quickstart'?"},
      {{"train", "quickstart", "--fresh", "--resume-from", "x"},
       "error: --fresh and --resume-from contradict each other. --resume-from begins a new run by "
       "itself; choose its folder with run.name."},
      {{"evaluate", "m"}, "error: no text to evaluate on is given. Add --data FILE."},
      {{"generate", "m", "--prompt-ids", "1,a"},
       "error: --prompt-ids must be token ids such as 1,2,3, not '1,a'."},
  };
  for (const auto& item : kCases) {
    const RunResult result = run_tessera(item.arguments);
    EXPECT_EQ(result.exit_code, 2) << result.describe();
    EXPECT_EQ(result.last_error_line(), item.last_line);
    EXPECT_EQ(result.out, "");
  }
}

TEST(Program, HelpIsQuickAndOnStdout) {
  for (const std::vector<std::string>& arguments : {std::vector<std::string>{"--help"},
                                                    {"help"},
                                                    {"help", "train"},
                                                    {"train", "--help"},
                                                    {"config", "ls", "-h"},
                                                    {"generate", "--help"}}) {
    const RunResult result = run_tessera(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.describe();
    EXPECT_EQ(result.out.substr(0, 7), "Usage: ");
    EXPECT_EQ(result.err, "");
    EXPECT_LT(result.elapsed.count(), 1000) << "on a busy machine; alone it takes a few ms";
  }
  EXPECT_EQ(run_tessera({"--version"}).out.substr(0, 8), "tessera ");
}

TEST(Program, AMissingEngineIsNamed) {
  const RunFolder folder;
  std::filesystem::copy_file(tessera_program(), folder / "tessera");
  RunOptions options;
  options.program = folder / "tessera";
  options.working_folder = folder.path();
  options.arguments = {"generate", "m", "--prompt", "x"};
  const RunResult missing = run_program(options);
  EXPECT_EQ(missing.exit_code, 1) << missing.describe();
  EXPECT_NE(missing.last_error_line().find("error: the engine is not there"), std::string::npos);
  EXPECT_NE(missing.last_error_line().find("tessera doctor"), std::string::npos);
  folder.write("libtessera_engine.so", "not a library");
  const RunResult broken = run_program(options);
  EXPECT_EQ(broken.exit_code, 1) << broken.describe();
  EXPECT_NE(broken.last_error_line().find("error: the engine cannot be loaded"), std::string::npos);
}

TEST(Program, AClosedReaderEndsItQuietly) {
  RunOptions options;
  options.program = "/bin/sh";
  options.arguments = {"-c", "'" + tessera_program().string() + "' config schema | head -n 1"};
  const RunResult result = run_program(options);
  EXPECT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_EQ(result.out, "{\n");
  EXPECT_EQ(result.err, "");
  options.arguments = {"-c", "'" + tessera_program().string() + "' config schema > /dev/full"};
  const RunResult full = run_program(options);
  EXPECT_EQ(full.exit_code, 4) << full.describe();
  EXPECT_NE(full.last_error_line().find("error: cannot write to the standard output"),
            std::string::npos);
}

TEST(Program, CompletionScriptsKnowTheCommands) {
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const RunResult result = run_tessera({"completion", shell});
    EXPECT_EQ(result.exit_code, 0) << result.describe();
    for (const char* word : {"train", "config", "dry-run", "optim.lr="}) {
      EXPECT_NE(result.out.find(word), std::string::npos) << shell << " " << word;
    }
  }
  RunOptions options;
  options.program = "/bin/bash";
  options.arguments = {
      "-c", "source <('" + tessera_program().string() +
                "' completion bash);"
                "COMP_WORDS=(tessera train quickstart optim.l) COMP_CWORD=3; _tessera 2>/dev/null;"
                "echo \"${COMPREPLY[*]}\""};
  EXPECT_EQ(run_program(options).out, "optim.lr=\n");
}

}  // namespace
}  // namespace tessera::testing
