#include "model/gpt2.h"

#include <gtest/gtest.h>

#include <set>

namespace tessera {
namespace {

// Published sizes: GPT-2's own, and 29,974,418,432 of the 30B model at vocabulary 50257.
TEST(Gpt2Test, ParameterCountsAreThePublishedOnes) {
  const auto shape = [](std::int64_t width, std::int64_t layers, std::int64_t heads,
                        std::int64_t context) {
    return Gpt2Shape{.n_layer = layers, .n_head = heads, .n_embd = width, .n_positions = context};
  };
  EXPECT_EQ(parameter_count(shape(768, 12, 12, 1024)), 124439808);
  EXPECT_EQ(parameter_count(shape(1024, 24, 16, 1024)), 354823168);
  EXPECT_EQ(parameter_count(shape(1280, 36, 20, 1024)), 774030080);
  EXPECT_EQ(parameter_count(shape(1600, 48, 25, 1024)), 1557611200);
  EXPECT_EQ(parameter_count(shape(7168, 48, 64, 2048)), 29974418432);
}

TEST(Gpt2Test, ChainDeclaresWhatTheFormulaCounts) {
  for (const bool tied : {true, false}) {
    const Gpt2Shape shape{.n_layer = 3,
                          .n_head = 2,
                          .n_embd = 16,
                          .n_positions = 8,
                          .vocab_size = 30,
                          .padded_vocab_size = 32,
                          .tie_head = tied};
    const Chain chain = make_gpt2(shape);
    EXPECT_EQ(chain.parameter_count(), parameter_count(shape));
    EXPECT_EQ(chain.ties.size(), tied ? 1u : 0u);
    std::set<std::string> names;
    for (const auto& unit : chain.units) {
      for (const ParameterSpec& parameter : unit->parameters()) {
        EXPECT_TRUE(names.insert(parameter.name).second) << parameter.name;
        EXPECT_EQ(parameter.decay, parameter.shape.size() > 1) << parameter.name;
      }
    }
    EXPECT_EQ(names.size(), 4u + 36u + (tied ? 0u : 1u));
  }
}

TEST(Gpt2Test, FlopsAreSixPerWeightAndAttention) {
  // performance figure of GPT-2 124M at 256 tokens: 0.755 GFLOP a token.
  EXPECT_NEAR(flops_per_token(Gpt2Shape{}, 256) / 1e9, 0.755, 0.002);
}

}  // namespace
}  // namespace tessera
