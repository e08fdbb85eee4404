#include "ops/linear.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace tessera {
namespace {

// With a gradient buffer that already holds 1, and without one.
TEST(LinearTest, GradientsEqualThoseOfThePlainComposition) {
  for (const bool preset : {false, true}) {
    const at::Tensor x = at::randn({7, 5}, at::kDouble).requires_grad_(true);
    const at::Tensor weight = at::randn({5, 3}, at::kDouble).requires_grad_(true);
    const at::Tensor bias = at::randn({3}, at::kDouble).requires_grad_(true);
    const at::Tensor scale = at::randn({7, 3}, at::kDouble);
    (at::addmm(bias, x, weight) * scale).sum().backward();
    const at::Tensor x_gradient = x.grad().clone(), weight_gradient = weight.grad().clone(),
                     bias_gradient = bias.grad().clone();
    x.mutable_grad() = at::Tensor();
    weight.mutable_grad() = preset ? at::ones({5, 3}, at::kDouble) : at::Tensor();
    bias.mutable_grad() = preset ? at::ones({3}, at::kDouble) : at::Tensor();
    const at::Tensor y = linear(x, weight, bias);
    EXPECT_TRUE(at::allclose(y, at::addmm(bias, x, weight)));
    (y * scale).sum().backward();
    EXPECT_TRUE(at::allclose(x.grad(), x_gradient));
    EXPECT_TRUE(at::allclose(weight.grad() - (preset ? 1 : 0), weight_gradient));
    EXPECT_TRUE(at::allclose(bias.grad() - (preset ? 1 : 0), bias_gradient));
  }
}

TEST(LinearTest, GeluIsMadeAgainInBackward) {
  const at::Tensor x = at::randn({7, 5}, at::kDouble).requires_grad_(true);
  const at::Tensor weight = at::randn({5, 3}, at::kDouble).requires_grad_(true);
  const at::Tensor bias = at::randn({3}, at::kDouble).requires_grad_(true);
  const at::Tensor scale = at::randn({7, 3}, at::kDouble);
  const at::Tensor plain = at::addmm(bias, at::gelu(x, "tanh"), weight);
  (plain * scale).sum().backward();
  const at::Tensor x_gradient = x.grad().clone(), weight_gradient = weight.grad().clone();
  x.mutable_grad() = at::Tensor();
  weight.mutable_grad() = at::ones({5, 3}, at::kDouble);
  const at::Tensor y = gelu_linear(x, weight, bias);
  EXPECT_TRUE(at::allclose(y, plain));
  (y * scale).sum().backward();
  EXPECT_TRUE(at::allclose(x.grad(), x_gradient));
  EXPECT_TRUE(at::allclose(weight.grad() - 1, weight_gradient));
}

// The norm's result is the only thing made again: not a bit may differ.
TEST(LinearTest, TheNormBeforeIsMadeAgainInBackward) {
  for (const bool frozen : {false, true}) {
    const at::Tensor x = at::randn({7, 5}).requires_grad_(true);
    const at::Tensor norm_weight = at::randn({5}).requires_grad_(!frozen);
    const at::Tensor norm_bias = at::randn({5}).requires_grad_(!frozen);
    const at::Tensor weight = at::randn({5, 3}).requires_grad_(true);
    const at::Tensor bias = at::randn({3}).requires_grad_(true);
    const at::Tensor scale = at::randn({7, 3});
    const std::vector<at::Tensor> leaves = {x, norm_weight, norm_bias, weight, bias};
    const at::Tensor plain =
        linear(at::layer_norm(x, {5}, norm_weight, norm_bias, 1e-5), weight, bias);
    (plain * scale).sum().backward();
    std::vector<at::Tensor> gradients;
    for (const at::Tensor& leaf : leaves) {
      gradients.push_back(leaf.grad().defined() ? leaf.grad().clone() : at::Tensor());
      leaf.mutable_grad() = at::Tensor();
    }
    const at::Tensor y = norm_linear(x, norm_weight, norm_bias, 1e-5, weight, bias);
    EXPECT_TRUE(y.equal(plain));
    (y * scale).sum().backward();
    for (std::size_t i = 0; i < leaves.size(); ++i) {
      ASSERT_EQ(leaves[i].grad().defined(), gradients[i].defined()) << i;
      if (gradients[i].defined()) {
        EXPECT_TRUE(leaves[i].grad().equal(gradients[i])) << i;
      }
    }
  }
}

TEST(LinearTest, Bfloat16GradientsAreAddedInF32) {
  const at::Tensor x = at::randn({64, 8}).to(at::kBFloat16),
                   weight = at::randn({8, 4}).to(at::kBFloat16),
                   bias = at::zeros({4}).to(at::kBFloat16);
  weight.requires_grad_(true);
  weight.mutable_grad() = at::full({8, 4}, 256.0, at::kFloat);
  linear(x, weight, bias).backward(at::full({64, 4}, 0.001953125, at::kBFloat16));
  // In bf16 a sum of 256 and less than 1 would stay 256.
  const at::Tensor right = x.to(at::kFloat).sum(0).unsqueeze(1).expand({8, 4}) * 0.001953125f;
  EXPECT_TRUE(at::allclose(weight.grad() - 256.0, right, 1e-2, 1e-4));
}

TEST(EmbeddingTest, GradientsEqualThoseOfThePlainComposition) {
  for (const bool preset : {false, true}) {
    const at::Tensor weight = at::randn({11, 3}, at::kDouble).requires_grad_(true);
    const at::Tensor ids = at::randint(11, {4, 6}, at::kLong);
    const at::Tensor scale = at::randn({4, 6, 3}, at::kDouble);
    (at::embedding(weight, ids) * scale).sum().backward();
    const at::Tensor right = weight.grad().clone();
    weight.mutable_grad() = preset ? at::ones({11, 3}, at::kDouble) : at::Tensor();
    const at::Tensor y = embed(weight, ids);
    EXPECT_TRUE(at::equal(y, at::embedding(weight, ids)));
    (y * scale).sum().backward();
    EXPECT_TRUE(at::allclose(weight.grad() - (preset ? 1 : 0), right));
  }
}

}  // namespace
}  // namespace tessera
