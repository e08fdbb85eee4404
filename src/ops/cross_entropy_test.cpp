#include "ops/cross_entropy.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

namespace tessera {
namespace {

struct Case {
  at::Tensor hidden, projection, labels;
};

Case make_case(std::int64_t rows, std::int64_t vocabulary, at::ScalarType type) {
  Case made;
  made.hidden = at::randn({rows, 8}, at::kDouble).to(type).requires_grad_(true);
  made.projection = at::randn({vocabulary, 8}, at::kDouble).to(type).requires_grad_(true);
  made.labels = at::randint(vocabulary, {rows}, at::kLong);
  made.labels[1] = -100;
  return made;
}

// Chunks of 16 rows against PyTorch's plain composition.
TEST(CrossEntropyTest, EqualsThePlainComposition) {
  Case made = make_case(70, 131, at::kFloat);
  const at::Tensor plain = at::cross_entropy_loss(at::matmul(made.hidden, made.projection.t()),
                                                  made.labels, {}, at::Reduction::Sum, -100);
  (plain * 0.25).backward();
  const at::Tensor hidden_gradient = made.hidden.grad().clone(),
                   weight_gradient = made.projection.grad().clone();
  made.hidden.mutable_grad() = at::Tensor();
  made.projection.mutable_grad() = at::zeros_like(made.projection).detach();
  const CrossEntropySum fused = projection_cross_entropy(
      made.hidden, made.projection, made.labels, {},
      {.vocab_size = 131, .gradient_scale = 0.25, .count_correct = true, .chunk_bytes = 1});
  fused.loss.backward();
  EXPECT_NEAR(fused.loss.item<float>() / plain.item<float>(), 1.0, 1e-6);
  EXPECT_TRUE(at::allclose(made.hidden.grad(), hidden_gradient, 1e-5, 1e-6));
  EXPECT_TRUE(at::allclose(made.projection.grad(), weight_gradient, 1e-5, 1e-5));
  const at::Tensor right =
      at::matmul(made.hidden, made.projection.t()).argmax(1).eq(made.labels).sum();
  EXPECT_EQ(fused.correct.item<float>(), right.item<float>());
}

TEST(CrossEntropyTest, WeightsScaleRowsAndPaddingIsNeverPredicted) {
  Case made = make_case(20, 50, at::kFloat);
  const at::Tensor weights = at::rand({20});
  const at::Tensor labels = made.labels.remainder(40);
  labels[1] = -100;
  const at::NoGradGuard no_grad;
  const at::Tensor each =
      at::cross_entropy_loss(at::matmul(made.hidden, made.projection.narrow(0, 0, 40).t()), labels,
                             {}, at::Reduction::None, -100);
  const CrossEntropySum fused =
      projection_cross_entropy(made.hidden, made.projection, labels, weights, {.vocab_size = 40});
  EXPECT_NEAR(fused.loss.item<float>(), (each * weights).sum().item<float>(), 1e-4);
  EXPECT_FALSE(fused.loss.requires_grad());
}

// Central differences in f64, for an element of each input.
TEST(CrossEntropyTest, GradientAgreesWithCentralDifferences) {
  Case made = make_case(20, 23, at::kDouble);
  made.projection.mutable_grad() = at::zeros_like(made.projection).detach();
  projection_cross_entropy(made.hidden, made.projection, made.labels, {}, {.vocab_size = 23})
      .loss.backward();
  const auto loss = [&](const at::Tensor& hidden, const at::Tensor& projection) {
    const at::NoGradGuard no_grad;
    return at::cross_entropy_loss(at::matmul(hidden, projection.t()), made.labels, {},
                                  at::Reduction::Sum, -100)
        .item<double>();
  };
  const at::Tensor change = at::zeros_like(made.hidden).detach();
  change[3][4] = 1e-5;
  const at::NoGradGuard no_grad;
  EXPECT_NEAR(
      made.hidden.grad()[3][4].item<double>(),
      (loss(made.hidden + change, made.projection) - loss(made.hidden - change, made.projection)) /
          2e-5,
      1e-6);
}

}  // namespace
}  // namespace tessera
