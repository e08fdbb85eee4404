// A run small enough for tests of the whole program: a text, a config of 35,000 parameters and byte
// tokens, in a temporary folder. Owns: that folder, starting the program in it, reading what runs
// left there.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "support/json_lines.h"
#include "support/run_folder.h"
#include "support/run_program.h"

namespace tessera::testing {

// Whether the program reserves address space for a sanitizer, so that RLIMIT_AS cannot be used.
inline constexpr bool kSanitized =
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    true;
#else
    false;
#endif

// Sentences of 20 words in an order that is always the same. One line is about 50 bytes.
inline std::string sample_text(int lines) {
  static constexpr const char* kWords[] = {"the",   "a",   "cat",   "dog", "sat",   "on",   "mat",
                                           "under", "big", "small", "red", "house", "tree", "walks",
                                           "and",   "but", "then",  "or",  "so",    "runs"};
  std::uint32_t state = 12345;
  std::string text;
  for (int line = 0; line < lines; ++line) {
    for (int word = 0; word < 11; ++word) {
      state = state * 1664525U + 1013904223U;
      text += std::string(word == 0 ? "" : " ") + kWords[(state >> 16) % 20];
    }
    text += ".\n";
  }
  return text;
}

// Dropout, accumulation with an uneven last batch of each epoch, evaluations and checkpoints at
// different steps.
inline constexpr const char* kTinyConfig =
    R"(model: {n_layer: 2, n_head: 2, n_embd: 32, n_positions: 32, dropout: 0.1}
data: {train: text.txt, train_fraction: 0.9, tokenizer: byte, block_size: 32}
optim: {lr: 2e-3, min_lr: 1e-4, schedule: cosine, warmup: 5, grad_clip: 1.0}
train: {max_steps: 40, global_batch_size: 12, batch_size: 4, eval_every: 5, eval_batches: 1}
precision: {compute: f32}
checkpoint: {every: 3, keep: 4}
log: {every: 1}
run: {threads: 1}
)";

class TinyRun : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!engine_is_built()) GTEST_SKIP() << "this build has no engine (TESSERA_ENGINE=OFF)";
    folder_.write("text.txt", sample_text(120));
    folder_.write("tiny.yaml", kTinyConfig);
  }

  RunOptions command(std::vector<std::string> arguments) const {
    RunOptions options;
    options.arguments = std::move(arguments);
    options.environment["TESSERA_CACHE"] = (folder_ / "cache").string();
    options.working_folder = folder_.path();
    return options;
  }
  // `tessera train tiny.yaml --json run.name=NAME more…`
  RunOptions train_command(const std::string& name,
                           const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments = {"train", "tiny.yaml", "--json", "run.name=" + name};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return command(std::move(arguments));
  }
  RunResult train(const std::string& name, const std::vector<std::string>& more = {}) const {
    return run_program(train_command(name, more));
  }
  // The same, and the test fails where it does not end well.
  std::vector<Json> trained(const std::string& name,
                            const std::vector<std::string>& more = {}) const {
    const RunResult result = train(name, more);
    EXPECT_EQ(result.exit_code, 0) << result.describe();
    return parse_json_lines(result.out);
  }

  Path run(const std::string& name) const { return folder_ / "runs" / name; }
  Path checkpoint(const std::string& name, int step) const {
    std::string number = std::to_string(step);
    return run(name) / "checkpoints" / ("step_" + std::string(8 - number.size(), '0') + number);
  }
  std::vector<std::string> checkpoints(const std::string& name) const {
    std::vector<std::string> visible;
    for (const std::string& entry : folder_.list(run(name) / "checkpoints")) {
      if (entry.starts_with("step_")) visible.push_back(entry);
    }
    return visible;
  }

  std::vector<Json> metrics(const std::string& name) const {
    return metric_lines(run(name) / "metrics.jsonl");
  }
  // Torn lines of killed processes are skipped, as docs/metrics.md tells readers to.
  static std::vector<Json> metric_lines(const Path& path) {
    std::vector<Json> lines;
    std::string text = read_file(path);
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t end = std::min(text.find('\n', begin), text.size());
      const std::string line = text.substr(begin, end - begin);
      if (Json::accept(line)) lines.push_back(Json::parse(line));
      begin = end + 1;
    }
    return lines;
  }
  // A value of every step; of lines of the same step the last counts.
  static std::map<std::int64_t, double> values(const std::vector<Json>& lines,
                                               const std::string& event, const std::string& key) {
    std::map<std::int64_t, double> result;
    for (const Json& line : events(lines, event)) result[line.at("step")] = line.at(key);
    return result;
  }

  // Weights, optimizer state and the trainer's own state have the same bytes.
  void expect_same_state(const Path& one, const Path& other) const {
    for (const char* file : {"model.safetensors", "optimizer.safetensors", "state.json"}) {
      const std::string a = read_file(one / file), b = read_file(other / file);
      EXPECT_FALSE(a.empty());
      EXPECT_TRUE(a == b) << file << " differs: " << one << " and " << other
                          << (std::string(file) == "state.json" ? "\n" + a + "\n" + b : "");
    }
  }

  RunFolder folder_;
};

// The cause is the last line.
inline void expect_error(const RunResult& result, int exit_code,
                         const std::vector<std::string>& parts) {
  EXPECT_EQ(result.exit_code, exit_code) << result.describe();
  EXPECT_EQ(result.signal, 0) << result.describe();
  const std::string line = result.last_error_line();
  EXPECT_TRUE(line.starts_with("error: ")) << result.describe();
  for (const std::string& part : parts) {
    EXPECT_NE(line.find(part), std::string::npos) << "no '" << part << "' in: " << line;
  }
}

// With --json a failure is also the last line of stdout.
inline void expect_failed_event(const RunResult& result, int exit_code) {
  const std::vector<Json> lines = parse_json_lines(result.out);
  ASSERT_FALSE(lines.empty()) << result.describe();
  const Json& end = lines.back();
  EXPECT_EQ(end.value("event", ""), "end") << result.describe();
  EXPECT_EQ(end.value("status", ""), "failed") << result.describe();
  EXPECT_EQ(end.value("exit_code", 0), exit_code) << result.describe();
  EXPECT_EQ("error: " + end.value("error", ""), result.last_error_line());
}

}  // namespace tessera::testing
