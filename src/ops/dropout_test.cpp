#include "ops/dropout.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "base/philox.h"

namespace tessera {
namespace {

const DropoutKey kKey{.seed = 0x123456789ABCDEF0, .step = 7, .site = 19, .first_row = 5};

TEST(DropoutTest, KernelFollowsPhiloxElementByElement) {
  const at::Tensor out = keyed_dropout(at::ones({3, 150}), 0.25, kKey);
  for (std::int64_t row = 0; row < 3; ++row) {
    for (std::int64_t element = 0; element < 150; ++element) {
      const PhiloxBlock bits = philox4x32(
          {static_cast<std::uint32_t>(element / 4), static_cast<std::uint32_t>(5 + row), 19, 7},
          kKey.seed);
      const float expected = bits[element % 4] < 0.75 * 4294967296.0 ? 1 / 0.75f : 0.0f;
      ASSERT_FLOAT_EQ(out[row][element].item<float>(), expected) << row << ", " << element;
    }
  }
}

TEST(DropoutTest, TensorOperationsGiveTheSameMask) {
  const at::Tensor like = at::ones({4, 9, 1001});
  const at::Tensor kept = keyed_dropout(like, 0.1, kKey).gt(0).to(at::kFloat);
  EXPECT_TRUE(at::equal(kept, dropout_mask_by_tensor_operations(like, 0.1, kKey)));
  EXPECT_NEAR(kept.mean().item<double>(), 0.9, 0.01);
}

TEST(DropoutTest, RowsDependOnTheirGlobalNumberOnly) {
  const at::Tensor x = at::rand({6, 500});
  const at::Tensor whole = keyed_dropout(x, 0.5, kKey);
  DropoutKey later = kKey;
  later.first_row += 2;
  const at::Tensor parts = at::cat(
      {keyed_dropout(x.narrow(0, 0, 2), 0.5, kKey), keyed_dropout(x.narrow(0, 2, 4), 0.5, later)});
  EXPECT_TRUE(at::equal(whole, parts));
  later.step += 1;
  EXPECT_FALSE(at::equal(whole.narrow(0, 2, 4), keyed_dropout(x.narrow(0, 2, 4), 0.5, later)));
}

TEST(DropoutTest, BackwardMakesTheSameMask) {
  at::Tensor x = at::rand({5, 333}).requires_grad_(true);
  const at::Tensor y = keyed_dropout(x, 0.3, kKey);
  y.backward(at::ones_like(y));
  EXPECT_TRUE(at::allclose(x.grad() * x, y.detach()));
  EXPECT_TRUE(keyed_dropout(x, 0.0, kKey).is_same(x));
}

}  // namespace
}  // namespace tessera
