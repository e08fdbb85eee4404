// NCCL: where there is no GPU, it is refused with a reason; on one GPU, every verb of a group of
// one (NCCL gives each GPU to one rank only).
#include <ATen/DeviceAccelerator.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full_like.h>
#include <gtest/gtest.h>

#include <string>

#include "base/error.h"
#include "parallel/transports.h"
#include "store/store_server.h"

namespace tessera {
namespace {

std::string refusal(std::string_view name, const GroupPlace& place) {
  try {
    make_communicator(name, place);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig) << error.what();
    return error.what();
  }
  return "accepted";
}

TEST(Nccl, IsRefusedForTensorsInMainMemory) {
  const std::string text = refusal("nccl", {});
  EXPECT_TRUE(text.find("this build's torch has no NCCL") != std::string::npos ||
              text.find("the ranks compute on cpu") != std::string::npos)
      << text;
}

TEST(Nccl, OthersAreRefusedForTensorsOnAGpu) {
  const GroupPlace place{
      .world_size = 2, .local_world_size = 2, .device = at::Device(at::kCUDA, 0)};
  for (const char* name : {"gloo", "shm", "mpi"}) {
    EXPECT_NE(refusal(name, place).find("cannot move tensors of cuda:0"), std::string::npos);
  }
}

// A sum over one rank is what was there; what goes from one tensor to another must arrive.
TEST(Nccl, EveryVerbAndTypeOfOneRankOnAGpu) {
  if (at::getAccelerator(false) != at::kCUDA || at::accelerator::deviceCount() == 0) {
    GTEST_SKIP() << "torch sees no GPU on this machine";
  }
  const StoreServer store{StoreServerOptions{}};
  const GroupPlace place{.store_host = store.address(),
                         .store_port = store.port(),
                         .key_prefix = "nccl-alone/",
                         .timeout = std::chrono::seconds(60),
                         .device = at::Device(at::kCUDA, 0)};
  const auto communicator = make_communicator("nccl", place);
  EXPECT_EQ(communicator->name(), "nccl");
  for (const auto type : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf, at::kLong}) {
    SCOPED_TRACE(c10::toString(type));
    // 0 … 99 are exact in every type.
    const at::Tensor values = at::arange(100, at::TensorOptions().dtype(type).device(place.device));
    for (const auto operation : {ReduceOperation::kSum, ReduceOperation::kMax}) {
      const at::Tensor reduced = values.clone(), scattered = at::full_like(values, -1);
      communicator->all_reduce(reduced, operation)->wait();
      communicator->reduce_scatter(scattered, values, operation)->wait();
      EXPECT_TRUE(at::equal(reduced, values));
      EXPECT_TRUE(at::equal(scattered, values));
    }
    const at::Tensor gathered = at::full_like(values, -1), broadcast = values.clone();
    communicator->all_gather(gathered, values)->wait();
    communicator->broadcast(broadcast, 0)->wait();
    EXPECT_TRUE(at::equal(gathered, values));
    EXPECT_TRUE(at::equal(broadcast, values));
  }
  communicator->barrier()->wait();
}

}  // namespace
}  // namespace tessera
