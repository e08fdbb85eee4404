#include "parallel/fake_communicator.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace tessera {
namespace {

TEST(FakeCommunicator, ResultsHaveTheSizesOfTheWholeWorld) {
  const auto fake = make_fake_communicator(5, 512);
  EXPECT_EQ(fake->rank(), 5);
  EXPECT_EQ(fake->world_size(), 512);

  const at::Tensor own = at::arange(3, at::kFloat), all = at::zeros({3 * 512});
  fake->all_gather(all, own)->wait();
  EXPECT_TRUE(at::equal(all.view({512, 3}), own.expand({512, 3})));

  const at::Tensor in_place = at::zeros({3 * 512});
  in_place.narrow(0, 5 * 3, 3).copy_(own);
  fake->all_gather(in_place, in_place.narrow(0, 5 * 3, 3))->wait();
  EXPECT_TRUE(at::equal(in_place, all));
}

TEST(FakeCommunicator, ReductionsLeaveTheOwnContribution) {
  const auto fake = make_fake_communicator(2, 4);
  const at::Tensor input = at::arange(8, at::kFloat), output = at::zeros({2});
  fake->reduce_scatter(output, input, ReduceOperation::kSum)->wait();
  EXPECT_TRUE(at::equal(output, at::tensor({4.0F, 5.0F})));
  const at::Tensor part = input.narrow(0, 4, 2);
  fake->reduce_scatter(part, input, ReduceOperation::kMax)->wait();
  EXPECT_TRUE(at::equal(input, at::arange(8, at::kFloat)));

  const at::Tensor tensor = at::ones({5});
  fake->all_reduce(tensor, ReduceOperation::kSum)->wait();
  fake->broadcast(tensor, 3)->wait();
  fake->barrier()->wait();
  EXPECT_TRUE(at::equal(tensor, at::ones({5})));
}

}  // namespace
}  // namespace tessera
