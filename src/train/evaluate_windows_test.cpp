#include "train/evaluate_windows.h"

#include <gtest/gtest.h>

#include <vector>

namespace tessera {
namespace {

TEST(WindowPlan, EveryTokenButTheFirstIsATargetExactlyOnceWithEnoughBeforeIt) {
  for (std::int64_t block = 1; block <= 7; ++block) {
    for (std::int64_t stride = 1; stride <= block; ++stride) {
      for (std::int64_t tokens = 0; tokens <= 30; ++tokens) {
        const WindowPlan plan{block, stride};
        std::vector<int> times(static_cast<std::size_t>(tokens), 0);
        for (std::int64_t k = 0; k < plan.count(tokens); ++k) {
          const EvaluationWindow window = plan.window(tokens, k);
          ASSERT_GE(window.inputs - window.context, 1);
          ASSERT_LE(window.inputs, block);
          ASSERT_EQ(window.begin, k * stride);
          for (std::int64_t i = window.context; i < window.inputs; ++i) {
            const std::int64_t target = window.begin + i + 1;
            ASSERT_LT(target, tokens);
            ++times[static_cast<std::size_t>(target)];
            ASSERT_GE(i + 1, k == 0 ? 1 : block - stride + 1);
          }
        }
        for (std::int64_t i = 0; i < tokens; ++i) {
          ASSERT_EQ(times[static_cast<std::size_t>(i)], i == 0 ? 0 : 1)
              << block << " " << stride << " " << tokens << " " << i;
        }
      }
    }
  }
}

TEST(WindowPlan, FirstWindowCountsAllLaterOnesTheirLastStride) {
  const WindowPlan plan{4, 2};
  ASSERT_EQ(plan.count(8), 3);
  EXPECT_EQ(plan.window(8, 0), (EvaluationWindow{0, 4, 0}));
  EXPECT_EQ(plan.window(8, 1), (EvaluationWindow{2, 4, 2}));
  EXPECT_EQ(plan.window(8, 2), (EvaluationWindow{4, 3, 2}));
}

}  // namespace
}  // namespace tessera
