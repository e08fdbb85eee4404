#include "ops/attention.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

namespace tessera {
namespace {

const DropoutKey kAttentionKey{.seed = 5, .step = 3, .site = 9, .first_row = 2};

at::Tensor lower_triangle(std::int64_t length) {
  return at::ones({length, length}, at::kBool).tril();
}

// The same function of plain operations that autograd differentiates by itself, in f64.
TEST(AttentionTest, ValueAndGradientsEqualThePlainComposition) {
  const auto draw = [] { return at::randn({2, 3, 6, 4}, at::kDouble).requires_grad_(true); };
  const at::Tensor query = draw(), key = draw(), value = draw(),
                   scale = at::randn({2, 3, 6, 4}, at::kDouble);
  const at::Tensor scores = (at::matmul(query, key.transpose(2, 3)) / 2.0)
                                .masked_fill(lower_triangle(6).logical_not(), -INFINITY);
  const at::Tensor plain =
      at::matmul(keyed_dropout(at::softmax(scores, -1), 0.3, kAttentionKey), value);
  (plain * scale).sum().backward();
  const at::Tensor q = query.grad().clone(), k = key.grad().clone(), v = value.grad().clone();
  for (const at::Tensor& input : {query, key, value}) input.mutable_grad() = at::Tensor();
  const at::Tensor fused =
      attention_with_dropout(query, key, value, lower_triangle(6), 0.3, kAttentionKey);
  (fused * scale).sum().backward();
  EXPECT_TRUE(at::allclose(fused, plain));
  EXPECT_TRUE(at::allclose(query.grad(), q));
  EXPECT_TRUE(at::allclose(key.grad(), k));
  EXPECT_TRUE(at::allclose(value.grad(), v));
}

TEST(AttentionTest, WithoutDropoutItIsScaledDotProductAttention) {
  const at::NoGradGuard no_grad;
  const at::Tensor query = at::randn({2, 2, 5, 8}), key = at::randn({2, 2, 5, 8}),
                   value = at::randn({2, 2, 5, 8});
  EXPECT_TRUE(
      at::allclose(attention_with_dropout(query, key, value, lower_triangle(5), 0.0, kAttentionKey),
                   at::scaled_dot_product_attention(query, key, value, {}, 0.0, true), 1e-5, 1e-6));
}

}  // namespace
}  // namespace tessera
