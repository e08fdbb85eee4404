#include "parallel/reduce_ranks.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace tessera {
namespace {

std::vector<const void*> pointers(const std::vector<at::Tensor>& tensors) {
  std::vector<const void*> all;
  for (const at::Tensor& tensor : tensors) all.push_back(tensor.const_data_ptr());
  return all;
}

// ATen as the other implementation: from left to right, halves in f32 and rounded once.
at::Tensor by_aten(const std::vector<at::Tensor>& tensors, ReduceOperation operation) {
  const at::ScalarType type = tensors[0].scalar_type();
  const bool half = type == at::kBFloat16 || type == at::kHalf;
  at::Tensor total = half ? tensors[0].to(at::kFloat) : tensors[0].clone();
  for (std::size_t rank = 1; rank < tensors.size(); ++rank) {
    const at::Tensor next = half ? tensors[rank].to(at::kFloat) : tensors[rank];
    total = operation == ReduceOperation::kSum ? total + next : at::maximum(total, next);
  }
  return total.to(type);
}

TEST(ReduceRanks, EqualsAtenBitForBit) {
  for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf, at::kLong}) {
    for (const int ranks : {1, 2, 3, 7}) {
      for (const std::int64_t count : {0, 1, 7, 1024, 5000}) {
        std::vector<at::Tensor> inputs;
        for (int rank = 0; rank < ranks; ++rank) {
          inputs.push_back(at::randn({count}).mul(1000).to(type));
        }
        for (const auto operation : {ReduceOperation::kSum, ReduceOperation::kMax}) {
          const at::Tensor output = at::empty({count}, type);
          reduce_ranks(output.data_ptr(), pointers(inputs), count, type, operation);
          EXPECT_TRUE(at::equal(output, by_aten(inputs, operation)))
              << c10::toString(type) << ", " << ranks << " ranks, " << count;
        }
      }
    }
  }
}

TEST(ReduceRanks, OutputMayBeAnInput) {
  const std::vector<at::Tensor> inputs = {at::randn({3000}), at::randn({3000}), at::randn({3000})};
  const at::Tensor expected = by_aten(inputs, ReduceOperation::kSum);
  reduce_ranks(inputs[1].data_ptr(), pointers(inputs), 3000, at::kFloat, ReduceOperation::kSum);
  EXPECT_TRUE(at::equal(inputs[1], expected));
}

TEST(ReduceRanks, NotANumberIsNeverLost) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
    for (const int at_rank : {0, 1, 2}) {
      std::vector<at::Tensor> inputs;
      for (int rank = 0; rank < 3; ++rank) {
        inputs.push_back(at::full({9}, rank == at_rank ? nan : 1.0F, type));
      }
      for (const auto operation : {ReduceOperation::kSum, ReduceOperation::kMax}) {
        const at::Tensor output = at::zeros({9}, type);
        reduce_ranks(output.data_ptr(), pointers(inputs), 9, type, operation);
        EXPECT_TRUE(output.isnan().all().item<bool>()) << c10::toString(type) << at_rank;
      }
    }
  }
}

TEST(ReduceRanks, HalvesAreRoundedToNearestEven) {
  // Every bf16 and f16 to f32 and back, and what lies half-way between two of them.
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    const at::Tensor all = at::arange(65536, at::kInt).to(at::kShort).view(type);
    at::Tensor wide = at::empty({65536}, at::kFloat), back = at::empty({65536}, type);
    widen(wide.data_ptr<float>(), all.const_data_ptr(), 65536, type);
    EXPECT_TRUE(at::equal(wide.nan_to_num(), all.to(at::kFloat).nan_to_num()));
    for (const float factor : {1.0F, 1.0F + std::ldexp(1.0F, -8), 1.0F - std::ldexp(3.0F, -12)}) {
      const at::Tensor between = wide * factor;
      narrow(back.data_ptr(), between.const_data_ptr<float>(), 65536, type);
      const at::Tensor expected = between.to(type);
      EXPECT_TRUE(at::equal(back.isnan(), expected.isnan()));
      const at::Tensor numbers = expected.isnan().logical_not();
      EXPECT_TRUE(at::equal(back.masked_select(numbers), expected.masked_select(numbers)));
    }
  }
}

}  // namespace
}  // namespace tessera
