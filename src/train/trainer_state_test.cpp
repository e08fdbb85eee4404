#include "train/trainer_state.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace tessera {
namespace {

TEST(TrainerStateTest, ReadsBackTheSameBits) {
  TrainerState state;
  state.step = 123;
  state.tokens = 1LL << 40;
  state.position = {.seed = 0xFFFFFFFFFFFFFFFFu, .epoch = 3, .offset = 77};
  state.best_eval_loss = 0.1 + 0.2;
  state.loss_scale = {.scale = 65536, .good_steps = 9, .enabled = true};
  state.plateau.factor = 1.0 / 3.0;
  state.layout.threads = 2;
  const std::string text = to_json(state);
  const TrainerState read = parse_trainer_state(text, "state.json");
  EXPECT_EQ(to_json(read), text);
  EXPECT_EQ(read.position, state.position);
  EXPECT_EQ(*read.best_eval_loss, 0.1 + 0.2);
  EXPECT_EQ(read.plateau, state.plateau);
}

TEST(TrainerStateTest, BrokenTextNamesItsPath) {
  for (const char* text : {"", "{}", "[1]", R"({"step":"x"})"}) {
    try {
      parse_trainer_state(text, "dir/state.json");
      FAIL() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kCorrupt);
      EXPECT_EQ(error.where(), "dir/state.json");
    }
  }
}

TEST(TrainerStateTest, DifferencesAreNamed) {
  NumericLayout before{.device = "cpu",
                       .precision = "f32",
                       .torch = "2.13.0",
                       .cpu_capability = "AVX2",
                       .threads = 2};
  NumericLayout after = before;
  EXPECT_EQ(describe_difference(before, after), "");
  after.threads = 4;
  EXPECT_EQ(describe_difference(before, after), "threads 2 -> 4");
}

}  // namespace
}  // namespace tessera
