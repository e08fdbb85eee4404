// Ranks on GPUs: c10d's ProcessGroupNCCL. Compiled with a GPU build of torch only; no_nccl.cpp
// stands in its place elsewhere. A peer that is lost is noticed by c10d's own watchdog, which ends
// the process after the time limit.
#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <functional>
#include <string>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <utility>
#include <vector>

#include "base/error.h"
#include "parallel/collective_communicator.h"
#include "parallel/transport_factories.h"

namespace tessera {
namespace {

bool is_half(at::ScalarType type) { return type == at::kBFloat16 || type == at::kHalf; }
std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

// Calls torch; what it throws becomes one Error.
template <class Call>
auto translated(const std::string& what, const std::string& where, const Call& call) {
  try {
    return call();
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw Error(ErrorKind::kComm, what + " failed: " + first_line(error.what()), where,
                "Look at the ends of all ranks' logs for the first failure; NCCL_DEBUG=INFO tells "
                "more.");
  }
}

class NcclWork final : public Work {
 public:
  // `finish` is put on the current stream by wait().
  NcclWork(c10::intrusive_ptr<c10d::Work> work, std::function<void()> finish,
           std::string description, std::string where)
      : work_(std::move(work)),
        finish_(std::move(finish)),
        description_(std::move(description)),
        where_(std::move(where)) {}

  void wait() override {
    translated(description_, where_, [&] {
      work_->wait();
      if (finish_) std::exchange(finish_, nullptr)();
    });
  }

 private:
  c10::intrusive_ptr<c10d::Work> work_;
  std::function<void()> finish_;
  std::string description_, where_;
};

c10d::ReduceOp reduce_op(ReduceOperation operation) {
  return operation == ReduceOperation::kSum ? c10d::ReduceOp::SUM : c10d::ReduceOp::MAX;
}

class NcclCommunicator final : public CollectiveCommunicator {
 public:
  NcclCommunicator(const GroupPlace& place, c10::intrusive_ptr<c10d::ProcessGroupNCCL> group)
      : CollectiveCommunicator(place.rank, place.world_size, "nccl", place.device),
        group_(std::move(group)) {}

 private:
  struct Begun {
    c10::intrusive_ptr<c10d::Work> work;
    std::function<void()> finish;
  };

  std::unique_ptr<Work> start(Collective collective) override {
    const std::string description = collective.describe(), where = describe_rank(*this);
    Begun begun = translated(description, where, [&] { return begin(std::move(collective)); });
    return std::make_unique<NcclWork>(std::move(begun.work), std::move(begun.finish), description,
                                      where);
  }

  Begun begin(Collective collective) {
    switch (collective.verb) {
      case Verb::kAllReduce: return all_reduce_of(collective);
      case Verb::kReduceScatter: return reduce_scatter_of(collective);
      case Verb::kAllGather:
        return {group_->_allgather_base(collective.output, collective.input), nullptr};
      case Verb::kBroadcast: {
        std::vector<at::Tensor> tensors = {collective.output};
        c10d::BroadcastOptions options;
        options.rootRank = collective.root;
        return {group_->broadcast(tensors, options), nullptr};
      }
      case Verb::kBarrier: return {group_->barrier(), nullptr};
    }
    throw Error(ErrorKind::kInternal, "nccl knows no such verb");
  }

  // NCCL would round to bf16 or f16 at every addition.
  Begun all_reduce_of(const Collective& collective) {
    const at::Tensor tensor = collective.output;
    const bool half = is_half(tensor.scalar_type());
    std::vector<at::Tensor> tensors = {half ? tensor.to(at::kFloat) : tensor};
    c10d::AllreduceOptions options;
    options.reduceOp = reduce_op(collective.operation);
    auto work = group_->allreduce(tensors, options);
    if (!half) return {std::move(work), nullptr};
    return {std::move(work), [tensor, wide = tensors[0]] { tensor.data().copy_(wide); }};
  }

  Begun reduce_scatter_of(const Collective& collective) {
    at::Tensor output = collective.output, input = collective.input;
    c10d::ReduceScatterOptions options;
    options.reduceOp = reduce_op(collective.operation);
    if (!is_half(output.scalar_type())) {
      return {group_->_reduce_scatter_base(output, input, options), nullptr};
    }
    at::Tensor wide_input = input.to(at::kFloat);
    at::Tensor wide = at::empty({output.numel()}, wide_input.options());
    auto work = group_->_reduce_scatter_base(wide, wide_input, options);
    return {std::move(work), [output, wide] { output.data().copy_(wide.view_as(output)); }};
  }

  c10::intrusive_ptr<c10d::ProcessGroupNCCL> group_;
};

}  // namespace

std::unique_ptr<Communicator> make_nccl_communicator(const GroupPlace& place) {
  const std::string where = place.describe("nccl");
  if (place.device.type() != at::kCUDA) {
    throw Error(ErrorKind::kConfig,
                "parallel.transport=nccl, but the ranks compute on " + place.device.str(), where,
                "Set run.device to the GPU, or choose another transport.");
  }
  return translated("connecting the ranks", where, [&]() -> std::unique_ptr<Communicator> {
    if (c10::impl::VirtualGuardImpl(at::kCUDA).deviceCount() == 0) {
      throw Error(ErrorKind::kConfig, "parallel.transport=nccl, but no GPU is visible", where,
                  "`nvidia-smi` shows what the driver sees.");
    }
    c10d::TCPStoreOptions store_options;
    store_options.port = static_cast<std::uint16_t>(place.store_port);
    store_options.timeout = place.timeout;
    auto store = c10::make_intrusive<c10d::PrefixStore>(
        place.key_prefix + "nccl",
        c10::make_intrusive<c10d::TCPStore>(place.store_host, store_options));
    auto options = c10d::ProcessGroupNCCL::Options::create();
    options->timeout = place.timeout;
    const c10::DeviceGuard guard(place.device);
    auto group =
        c10::make_intrusive<c10d::ProcessGroupNCCL>(store, place.rank, place.world_size, options);
    group->setBoundDeviceId(place.device);
    return std::make_unique<NcclCommunicator>(place, std::move(group));
  });
}

}  // namespace tessera
