// ProcessGroupGloo's header needs Gloo's own, which the torch wheel lacks; those installed are
// older than the Gloo inside torch. So this file alone includes them, calls only functions that
// torch exports, and makes no object of a class whose layout it only knows from them.
#include <signal.h>

#include <atomic>
#include <string>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <utility>
#include <vector>

#include "base/error.h"
#include "parallel/collective_communicator.h"
#include "parallel/reduce_ranks.h"
#include "parallel/transport_factories.h"
#include "store/store_client.h"

namespace tessera {
namespace {

bool is_half(at::ScalarType type) { return type == at::kBFloat16 || type == at::kHalf; }

// Gloo's first line, without the place in its sources before it and the advice after it.
std::string first_line(const std::string& text) {
  std::string line = text.substr(0, text.find('\n'));
  if (line.starts_with('[') && line.find("] ") != std::string::npos)
    line = line.substr(line.find("] ") + 2);
  return line.substr(0, line.find(" This is typically"));
}

struct GlooGroup {
  c10::intrusive_ptr<c10d::ProcessGroupGloo> group;
  std::atomic<bool> failed = false;

  ~GlooGroup() {
    // Its destructor joins threads that wait for ranks which may be dead: after a failure the group
    // is left to the end of the process.
    if (failed) (void)group.release();
  }
};

class GlooWork final : public Work {
 public:
  GlooWork(std::shared_ptr<GlooGroup> group, c10::intrusive_ptr<c10d::Work> work,
           std::string description, std::string where)
      : group_(std::move(group)),
        work_(std::move(work)),
        description_(std::move(description)),
        where_(std::move(where)) {}

  void wait() override {
    try {
      work_->wait();
    } catch (const std::exception& error) {
      group_->failed = true;
      throw Error(ErrorKind::kComm, description_ + " failed: " + first_line(error.what()), where_,
                  "A rank has ended, hangs, or cannot be reached: look at the ends of all ranks' "
                  "logs for the first failure.");
    }
  }

 private:
  std::shared_ptr<GlooGroup> group_;
  c10::intrusive_ptr<c10d::Work> work_;
  std::string description_, where_;
};

class GlooCommunicator final : public CollectiveCommunicator {
 public:
  GlooCommunicator(const GroupPlace& place, c10::intrusive_ptr<c10d::ProcessGroupGloo> group)
      : CollectiveCommunicator(place.rank, place.world_size, "gloo", at::Device(at::kCPU)),
        group_(std::make_shared<GlooGroup>()) {
    group_->group = std::move(group);
  }

  ~GlooCommunicator() override {
    for (const auto& work : outstanding_) {
      if (!work->isCompleted() || !work->isSuccess()) group_->failed = true;
    }
  }

 private:
  std::unique_ptr<Work> start(Collective collective) override {
    const std::string description = collective.describe();
    try {
      c10::intrusive_ptr<c10d::Work> work = begin(collective);
      std::erase_if(outstanding_,
                    [](const auto& old) { return old->isCompleted() && old->isSuccess(); });
      outstanding_.push_back(work);
      return std::make_unique<GlooWork>(group_, std::move(work), description, describe_rank(*this));
    } catch (const Error&) {
      throw;
    } catch (const std::exception& error) {
      group_->failed = true;
      throw Error(ErrorKind::kComm, description + " failed: " + first_line(error.what()),
                  describe_rank(*this));
    }
  }

  c10::intrusive_ptr<c10d::Work> begin(const Collective& collective) {
    c10d::ProcessGroupGloo& group = *group_->group;
    at::Tensor output = collective.output, input = collective.input;
    switch (collective.verb) {
      case Verb::kAllReduce: return all_reduce_of(collective);
      case Verb::kReduceScatter: return reduce_scatter_of(collective);
      case Verb::kAllGather: return group._allgather_base(output, input);
      case Verb::kBroadcast: {
        std::vector<at::Tensor> tensors = {output};
        c10d::BroadcastOptions options;
        options.rootRank = collective.root;
        return group.broadcast(tensors, options);
      }
      case Verb::kBarrier: return group.barrier();
    }
    throw Error(ErrorKind::kInternal, "gloo knows no such verb");
  }

  c10::intrusive_ptr<c10d::Work> reduce_in_place(const at::Tensor& tensor,
                                                 ReduceOperation operation) {
    std::vector<at::Tensor> tensors = {tensor};
    c10d::AllreduceOptions options;
    options.reduceOp =
        operation == ReduceOperation::kSum ? c10d::ReduceOp::SUM : c10d::ReduceOp::MAX;
    return group_->group->allreduce(tensors, options);
  }

  // Gloo would round to bf16 or f16 at every addition.
  c10::intrusive_ptr<c10d::Work> all_reduce_of(const Collective& collective) {
    const at::Tensor tensor = collective.output;
    if (!is_half(tensor.scalar_type())) return reduce_in_place(tensor, collective.operation);
    at::Tensor wide = at::empty({tensor.numel()}, tensor.options().dtype(at::kFloat));
    widen(wide.data_ptr<float>(), tensor.const_data_ptr(), tensor.numel(), tensor.scalar_type());
    auto work = reduce_in_place(wide, collective.operation);
    after(work, [tensor, wide] {
      narrow(tensor.data_ptr(), wide.const_data_ptr<float>(), tensor.numel(), tensor.scalar_type());
    });
    return work;
  }

  // As Gloo's own: the whole sum, of which this rank takes its part.
  c10::intrusive_ptr<c10d::Work> reduce_scatter_of(const Collective& collective) {
    const at::Tensor input = collective.input, output = collective.output;
    const at::ScalarType type = output.scalar_type();
    at::Tensor sums;
    if (is_half(type)) {
      sums = at::empty({input.numel()}, input.options().dtype(at::kFloat));
      widen(sums.data_ptr<float>(), input.const_data_ptr(), input.numel(), type);
    } else {
      sums = input.data();  // it may be overwritten
    }
    auto work = reduce_in_place(sums, collective.operation);
    const std::int64_t begin = collective.count * rank(), count = collective.count;
    after(work, [input, output, sums, begin, count, type] {
      if (is_half(type)) {
        narrow(output.data_ptr(), sums.const_data_ptr<float>() + begin, count, type);
      } else {
        const auto bytes = static_cast<std::size_t>(output.element_size());
        const auto* from = static_cast<const std::byte*>(sums.const_data_ptr()) +
                           static_cast<std::size_t>(begin) * bytes;
        std::memmove(output.data_ptr(), from, static_cast<std::size_t>(count) * bytes);
      }
    });
    return work;
  }

  // Runs before wait() returns: a future's callbacks come before what wait() waits for.
  template <class Task>
  static void after(const c10::intrusive_ptr<c10d::Work>& work, Task task) {
    work->getFuture()->addCallback(
        [task = std::move(task)](c10::ivalue::Future& future) {
          if (!future.hasError()) task();
        },
        /*uses_future=*/false);
  }

  std::shared_ptr<GlooGroup> group_;
  std::vector<c10::intrusive_ptr<c10d::Work>> outstanding_;
};

// Ranks leave a sign in the store first, so that a rank which waits in vain can say for whom.
std::string absent_ranks(const GroupPlace& place) {
  try {
    StoreClient store(
        {.host = place.store_host, .port = place.store_port, .prefix = place.key_prefix});
    std::string names;
    for (int rank = 0; rank < place.world_size; ++rank) {
      if (store.get("gloo/here/" + std::to_string(rank))) continue;
      names += (names.empty() ? "" : ", ") + std::to_string(place.world_rank(rank));
    }
    return names;
  } catch (const Error&) {
    return {};  // the store is gone too; the first reason is the one to tell
  }
}

// While an object lives, SIGPIPE is blocked in this thread, and for good in threads that it starts:
// Gloo's write to sockets without asking for no signal, and a peer that died must be an error, not
// this process's end.
class WithoutPipeSignal {
 public:
  WithoutPipeSignal() {
    sigset_t pipe;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe, &before_);
  }
  ~WithoutPipeSignal() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  WithoutPipeSignal(const WithoutPipeSignal&) = delete;
  WithoutPipeSignal& operator=(const WithoutPipeSignal&) = delete;

 private:
  sigset_t before_;
};

}  // namespace

std::unique_ptr<Communicator> make_gloo_communicator(const GroupPlace& place) {
  const WithoutPipeSignal guard;
  const std::string where = place.describe("gloo");
  StoreClient store({.host = place.store_host,
                     .port = place.store_port,
                     .prefix = place.key_prefix,
                     .connect_timeout = place.timeout});
  store.set("gloo/here/" + std::to_string(place.rank), "1");
  try {
    c10d::TCPStoreOptions store_options;
    store_options.port = static_cast<std::uint16_t>(place.store_port);
    store_options.timeout = place.timeout;
    auto tcp_store = c10::make_intrusive<c10d::TCPStore>(place.store_host, store_options);
    auto options = c10d::ProcessGroupGloo::Options::create(place.timeout);
    // The address by which this host reaches the store, not the host's name: that often means
    // 127.0.1.1, where no other host can connect.
    options->devices.push_back(
        c10d::ProcessGroupGloo::createDeviceForHostname(store.local_address()));
    return std::make_unique<GlooCommunicator>(
        place, c10::make_intrusive<c10d::ProcessGroupGloo>(
                   c10::make_intrusive<c10d::PrefixStore>(place.key_prefix + "gloo", tcp_store),
                   place.rank, place.world_size, options));
  } catch (const std::exception& error) {
    const std::string absent = absent_ranks(place);
    throw Error(ErrorKind::kComm,
                "gloo cannot connect the ranks: " +
                    (absent.empty() ? first_line(error.what())
                                    : "these ranks did not come within " +
                                          std::to_string(place.timeout.count()) + " ms: " + absent),
                where, "Look at the ranks' own logs; hosts must reach each other on all ports.");
  }
}

}  // namespace tessera
