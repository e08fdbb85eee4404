#include "tracking/console_text.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <regex>
#include <sstream>

#include "base/file_system.h"

namespace tessera {
namespace {

StepEvent example_step() {
  StepEvent event;
  event.step = 1200;
  event.total_steps = 5000;
  event.loss = 3.21449;
  event.grad_norm = 0.8123;
  event.lr = 2.94e-4;
  event.tokens_per_second = 812.4;
  event.mfu = 0.6149;
  event.memory_bytes = 2254857830;
  event.seconds_to_end = 4353;
  return event;
}

EvalEvent example_eval() {
  EvalEvent event;
  event.step = 1200;
  event.loss = 3.1021;
  event.perplexity = 22.2463;
  event.accuracy = 0.3712;
  event.seconds = 12.34;
  return event;
}

constexpr const char* kStepLine =
    "step 1200/5000 | loss 3.2145 | grad_norm 0.812 | lr 2.9e-04 | 812 tok/s | mfu 61% | "
    "mem 2.1GiB | eta 01:12:33";
constexpr const char* kEvalLine = "eval step 1200 | loss 3.1021 | ppl 22.25 | acc 0.371 | 12.3 s";

// What docs/metrics.md promises.
struct Documented {
  std::vector<std::string> lines;              // of its text block
  std::vector<std::string> whole;              // of its regex block
  std::map<std::string, std::string> metrics;  // of its table
};

Documented read_documentation() {
  const MappedFile file(Path(TESSERA_SOURCE_DIR) / "docs/metrics.md");
  std::istringstream text{std::string(file.text())};
  Documented documented;
  std::string block;
  for (std::string line; std::getline(text, line);) {
    if (line.starts_with("```")) {
      block = block.empty() ? line.substr(3) : "";
    } else if (block == "text") {
      documented.lines.push_back(line);
    } else if (block == "regex") {
      documented.whole.push_back(line);
    } else if (line.starts_with("| `train:") || line.starts_with("| `eval:")) {
      const std::size_t name_end = line.find('`', 3), begin = line.find('`', name_end + 1) + 1;
      documented.metrics[line.substr(3, name_end - 3)] =
          line.substr(begin, line.rfind('`') - begin);
    }
  }
  return documented;
}

std::vector<std::string> groups(const std::string& expression, const std::string& line) {
  std::smatch match;
  if (!std::regex_search(line, match, std::regex(expression))) return {};
  std::vector<std::string> found;
  for (std::size_t i = 1; i < match.size(); ++i) found.push_back(match[i].str());
  return found;
}

TEST(ConsoleTextTest, LinesAreAsTheDocumentationShowsThem) {
  EXPECT_EQ(step_line(example_step()), kStepLine);
  EXPECT_EQ(eval_line(example_eval()), kEvalLine);
  const Documented documented = read_documentation();
  EXPECT_EQ(documented.lines, (std::vector<std::string>{kStepLine, kEvalLine}));
}

TEST(ConsoleTextTest, DocumentedExpressionsParseBothLines) {
  const Documented documented = read_documentation();
  ASSERT_EQ(documented.whole.size(), 2u);
  using Groups = std::vector<std::string>;
  EXPECT_EQ(
      groups(documented.whole[0], kStepLine),
      (Groups{"1200", "5000", "3.2145", "0.812", "2.9e-04", "812", "61%", "2.1GiB", "01:12:33"}));
  EXPECT_EQ(groups(documented.whole[1], kEvalLine),
            (Groups{"1200", "3.1021", "22.25", "0.371", "12.3"}));
  EXPECT_TRUE(groups(documented.whole[0], kEvalLine).empty());
  EXPECT_TRUE(groups(documented.whole[1], kStepLine).empty());
}

TEST(ConsoleTextTest, DocumentedMetricDefinitionsFindOneNumberEach) {
  const Documented documented = read_documentation();
  const std::map<std::string, std::string> expected{{"train:step", "1200"},
                                                    {"train:loss", "3.2145"},
                                                    {"train:grad_norm", "0.812"},
                                                    {"train:lr", "2.9e-04"},
                                                    {"train:tokens_per_second", "812"},
                                                    {"train:mfu_percent", "61"},
                                                    {"eval:step", "1200"},
                                                    {"eval:loss", "3.1021"},
                                                    {"eval:perplexity", "22.25"},
                                                    {"eval:accuracy", "0.371"}};
  ASSERT_EQ(documented.metrics.size(), expected.size());
  for (const auto& [name, value] : expected) {
    ASSERT_TRUE(documented.metrics.contains(name)) << name;
    const std::string& expression = documented.metrics.at(name);
    const bool train = name.starts_with("train:");
    EXPECT_EQ(groups(expression, train ? kStepLine : kEvalLine), std::vector{value}) << name;
    EXPECT_TRUE(groups(expression, train ? kEvalLine : kStepLine).empty()) << name;
  }
}

TEST(ConsoleTextTest, UnknownAndHugeValuesKeepTheLayout) {
  StepEvent step = example_step();
  step.loss = std::numeric_limits<double>::quiet_NaN();
  step.grad_norm = std::numeric_limits<double>::infinity();
  step.lr = 0;
  step.tokens_per_second = 8.125;
  step.mfu.reset();
  step.memory_bytes = 0;
  step.seconds_to_end.reset();
  EXPECT_EQ(step_line(step),
            "step 1200/5000 | loss nan | grad_norm inf | lr 0.0e+00 | 8.1 tok/s | mfu - | mem - | "
            "eta --:--:--");
  EvalEvent eval = example_eval();
  eval.perplexity = 3.5e30;
  eval.accuracy.reset();
  EXPECT_EQ(eval_line(eval), "eval step 1200 | loss 3.1021 | ppl 3.500e+30 | acc - | 12.3 s");
  const Documented documented = read_documentation();
  EXPECT_EQ(groups(documented.whole.at(0), step_line(step)).size(), 9u);
  EXPECT_EQ(groups(documented.whole.at(1), eval_line(eval)).size(), 5u);
}

TEST(ConsoleTextTest, StartTableTellsEverythingAligned) {
  StartEvent event;
  event.run = "char";
  event.dir = "runs/char";
  event.model = "char: 4 layers";
  event.parameters = 1234567;
  event.trainable_parameters = 4567;
  event.device = "cpu";
  event.device_reason = "no accelerator found";
  event.precision = "f32";
  event.precision_reason = "this CPU has no AVX512_BF16";
  event.world_size = 2;
  event.mesh = "shard 2, replica 1";
  event.global_batch_size = 12;
  event.tokens_per_step = 768;
  event.total_steps = 2000;
  event.steps_per_epoch = 1306.87;
  event.data = {{"train", 1003854, 15685}, {"validation", 111540, 0}};
  event.checkpoint_dir = "runs/char/checkpoints";
  event.checkpoint_every = "500 steps";
  event.resumed_from_step = 40;
  event.resumed_from = "runs/char/checkpoints/step_00000040";
  event.more = {{"notes", "first try"}};
  const std::vector<std::string> expected{
      "run              char (runs/char)",
      "model            char: 4 layers",
      "parameters       1,234,567, 4,567 trainable",
      "device           cpu (no accelerator found)",
      "precision        f32 (this CPU has no AVX512_BF16)",
      "ranks            2 (shard 2, replica 1)",
      "batch            12 sequences a step, 768 tokens",
      "steps            2,000, 1306.9 an epoch",
      "train data       1,003,854 tokens, 15,685 sequences",
      "validation data  111,540 tokens",
      "checkpoints      runs/char/checkpoints, every 500 steps",
      "notes            first try",
      "start            resumed from step 40 (runs/char/checkpoints/step_00000040)"};
  EXPECT_EQ(start_table(event), expected);
}

TEST(ConsoleTextTest, LossScaleLineSaysWhatOverflowed) {
  EXPECT_EQ(loss_scale_line({.step = 3, .loss_scale = 32768, .not_finite = "gradient of h.0"}),
            "loss scale step 3 | 32768 | the gradient of h.0 overflowed: its batch is left out");
}

TEST(ConsoleTextTest, EndNamesBestLossModelAndNextCommands) {
  EndEvent event;
  event.status = EndStatus::kEarlyStopped;
  event.step = 5000;
  event.loss = 1.5012;
  event.best_eval_loss = 1.6621;
  event.best_eval_step = 4750;
  event.model = "runs/char/best";
  event.seconds = 4353;
  event.commands = {{"generate", "tessera generate runs/char"},
                    {"resume", "tessera train configs/char.yaml"}};
  const std::vector<std::string> expected{"early stopped at step 5000 after 01:12:33, loss 1.5012",
                                          "best eval loss 1.6621 (ppl 5.27) at step 4750",
                                          "the model is in runs/char/best",
                                          "next:",
                                          "  generate  tessera generate runs/char",
                                          "  resume    tessera train configs/char.yaml"};
  EXPECT_EQ(end_lines(event), expected);
}

std::size_t display_width(const std::string& text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

TEST(ConsoleTextTest, ProgressLineFitsAnyWidth) {
  ProgressState state;
  state.done = 1200;
  state.total = 5000;
  state.elapsed_seconds = 753;
  state.seconds_per_unit = 0.628;
  state.notes = {"loss 3.2145", "812 tok/s", "mfu 61%"};
  EXPECT_EQ(progress_line(state, {}, 71),
            "train:  24%|##4       | 1200/5000 [12:33<39:46, 1.59it/s, loss 3.2145]");
  const TerminalTraits utf8{.interactive = true, .colour = false, .utf8 = true};
  EXPECT_EQ(progress_line(state, utf8, 71),
            "train:  24%|██▍       | 1200/5000 [12:33<39:46, 1.59it/s, loss 3.2145]");
  for (int columns = 1; columns < 200; ++columns) {
    EXPECT_LT(display_width(progress_line(state, utf8, columns)),
              static_cast<std::size_t>(columns));
    EXPECT_LT(display_width(progress_line(state, {}, columns)), static_cast<std::size_t>(columns));
  }
  EXPECT_NE(progress_line(state, utf8, 160).find("mfu 61%"), std::string::npos);
  state.done = 9000;  // more than promised must not overflow the bar
  EXPECT_NE(progress_line(state, utf8, 80).find("100%|██████████"), std::string::npos);
  state.total = 0;
  state.seconds_per_unit = 2.5;
  EXPECT_EQ(progress_line(state, {}, 60), "train: 9000 [12:33, 2.50s/it, loss 3.2145, 812 tok/s]");
}

TEST(ConsoleTextTest, ColourIsOnlyUsedWhereAllowed) {
  ProgressState state;
  state.done = 1;
  state.total = 2;
  EXPECT_EQ(progress_line(state, {.interactive = true, .colour = false}, 80).find('\x1b'),
            std::string::npos);
  EXPECT_NE(progress_line(state, {.interactive = true, .colour = true}, 80).find("\x1b[32m"),
            std::string::npos);
}

}  // namespace
}  // namespace tessera
