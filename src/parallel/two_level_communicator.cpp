#include "parallel/two_level_communicator.h"

#include <ATen/ops/zeros.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "parallel/collective_communicator.h"
#include "parallel/ordered_worker.h"

namespace tessera {
namespace {

// One communicator and the thread that asks it for operations, in the order of the group's.
class Level {
 public:
  explicit Level(std::unique_ptr<Communicator> communicator)
      : communicator_(std::move(communicator)) {}

  int rank() const { return rank_; }
  int size() const { return size_; }
  const std::string& name() const { return name_; }

  std::unique_ptr<Work> begin(const std::function<std::unique_ptr<Work>(Communicator&)>& verb,
                              const std::string& note) {
    const std::scoped_lock lock(mutex_);
    if (!communicator_) {
      throw Error(ErrorKind::kComm, "the communicator was closed before this operation began");
    }
    communicator_->note(note);
    return verb(*communicator_);
  }
  std::unique_ptr<Work> run(std::function<void()> task) { return worker_.run(std::move(task)); }
  // Ends what its worker waits for.
  void close() {
    const std::scoped_lock lock(mutex_);
    communicator_.reset();
  }

 private:
  std::mutex mutex_;
  std::unique_ptr<Communicator> communicator_;
  const int rank_ = communicator_->rank(), size_ = communicator_->world_size();
  const std::string name_{communicator_->name()};
  OrderedWorker worker_;  // last, so that it ends before what it uses
};

// One step of an operation.
struct Hop {
  Level* level = nullptr;
  std::function<std::unique_ptr<Work>(Communicator&)> verb;
};

// On a GPU: the hops stand on a stream of their own, for which the waiting stream waits.
class StreamWork final : public Work {
 public:
  StreamWork(c10::Event done, Collective collective)
      : done_(std::move(done)), collective_(std::move(collective)) {}

  void wait() override {
    const at::Device device = collective_.output.device();
    done_.block(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
  }

 private:
  c10::Event done_;
  Collective collective_;  // its tensors are in use until the waiting stream has passed `done`
};

class TwoLevelCommunicator final : public CollectiveCommunicator {
 public:
  TwoLevelCommunicator(std::unique_ptr<Communicator> inside, std::unique_ptr<Communicator> across)
      : CollectiveCommunicator(inside->rank() * across->world_size() + across->rank(),
                               inside->world_size() * across->world_size(),
                               std::string(inside->name()) + "+" + std::string(across->name()),
                               std::nullopt),
        inside_(std::move(inside)),
        across_(std::move(across)) {}

  ~TwoLevelCommunicator() override {
    inside_.close();
    across_.close();
  }

 private:
  std::unique_ptr<Work> start(Collective collective) override {
    std::function<void()> finish;
    std::vector<Hop> hops = hops_of(collective, finish);
    if (hops.empty()) return finished_work();
    const bool on_cpu = !collective.output.defined() || collective.output.is_cpu();
    return on_cpu ? run_on_workers(std::move(hops), finish, collective)
                  : run_on_stream(hops, finish, std::move(collective));
  }

  // `finish` is set where something is left to do after the last hop.
  std::vector<Hop> hops_of(const Collective& of, std::function<void()>& finish) {
    switch (of.verb) {
      case Verb::kAllGather: return all_gather_hops(of);
      case Verb::kReduceScatter: return reduce_scatter_hops(of);
      case Verb::kAllReduce: return all_reduce_hops(of, finish);
      case Verb::kBroadcast: return broadcast_hops(of);
      case Verb::kBarrier: {
        const auto barrier = [](Communicator& level) { return level.barrier(); };
        // Each rank tells the other nodes that all of its own node are here.
        return {{&inside_, barrier}, {&across_, barrier}};
      }
    }
    throw Error(ErrorKind::kInternal, "two levels know no such verb");
  }

  // The part of `whole`, a tensor for all ranks, that this rank's equals on all nodes hold.
  at::Tensor of_local_rank(const at::Tensor& whole) const {
    const std::int64_t part = whole.numel() / inside_.size();
    return whole.data().view({-1}).narrow(0, inside_.rank() * part, part);
  }

  std::vector<Hop> all_gather_hops(const Collective& of) {
    const at::Tensor input = of.input, output = of.output, part = of_local_rank(of.output);
    return {{&across_, [=](Communicator& level) { return level.all_gather(part, input); }},
            {&inside_, [=](Communicator& level) { return level.all_gather(output, part); }}};
  }

  std::vector<Hop> reduce_scatter_hops(const Collective& of) {
    const at::Tensor input = of.input, output = of.output, part = of_local_rank(of.input);
    const ReduceOperation operation = of.operation;
    return {{&inside_,
             [=](Communicator& level) { return level.reduce_scatter(part, input, operation); }},
            {&across_,
             [=](Communicator& level) { return level.reduce_scatter(output, part, operation); }}};
  }

  // Each rank of a node adds one part over all nodes.
  std::vector<Hop> all_reduce_hops(const Collective& of, std::function<void()>& finish) {
    const at::Tensor tensor = of.output.data().view({-1});
    const std::int64_t count = tensor.numel();
    const std::int64_t padded = (count + inside_.size() - 1) / inside_.size() * inside_.size();
    at::Tensor whole = tensor;
    if (padded != count) {
      whole = at::zeros({padded}, tensor.options());
      whole.narrow(0, 0, count).copy_(tensor);
      finish = [tensor, whole, count] {
        if (tensor.is_cpu()) {
          std::memcpy(tensor.data_ptr(), whole.const_data_ptr(), tensor.nbytes());
        } else {
          tensor.copy_(whole.narrow(0, 0, count));
        }
      };
    }
    const at::Tensor part = of_local_rank(whole);
    const ReduceOperation operation = of.operation;
    return {
        {&inside_,
         [=](Communicator& level) { return level.reduce_scatter(part, whole, operation); }},
        {&across_, [=](Communicator& level) { return level.all_reduce(part, operation); }},
        {&inside_, [=](Communicator& level) { return level.all_gather(whole, part); }},
    };
  }

  std::vector<Hop> broadcast_hops(const Collective& of) {
    const int local = of.root / across_.size(), node = of.root % across_.size();
    const at::Tensor tensor = of.output;
    std::vector<Hop> hops;
    if (local == inside_.rank()) {
      hops.push_back(
          {&across_, [=](Communicator& level) { return level.broadcast(tensor, node); }});
    }
    hops.push_back({&inside_, [=](Communicator& level) { return level.broadcast(tensor, local); }});
    return hops;
  }

  // Both levels' threads take hops in the order of operations, which is the same on all ranks; a
  // hop waits for the one before it. So the levels work at once, on different operations.
  static std::unique_ptr<Work> run_on_workers(std::vector<Hop> hops,
                                              const std::function<void()>& finish,
                                              const Collective& collective) {
    std::shared_ptr<Work> before;
    std::unique_ptr<Work> last;
    for (std::size_t i = 0; i < hops.size(); ++i) {
      const bool is_last = i + 1 == hops.size();
      Level& level = *hops[i].level;
      auto task = [hop = std::move(hops[i]), before, note = collective.note,
                   after = is_last ? finish : std::function<void()>()] {
        if (before) before->wait();
        hop.level->begin(hop.verb, note)->wait();
        if (after) after();
      };
      last = level.run(std::move(task));
      if (!is_last) before = std::move(last);
    }
    return last;
  }

  std::unique_ptr<Work> run_on_stream(const std::vector<Hop>& hops,
                                      const std::function<void()>& finish, Collective collective) {
    const at::Device device = collective.output.device();
    const c10::impl::VirtualGuardImpl of_device(device.type());
    if (!stream_) stream_ = of_device.getStreamFromGlobalPool(device);
    c10::Event ready(device.type()), done(device.type());
    ready.record(of_device.getStream(device));
    ready.block(*stream_);
    const c10::StreamGuard guard(*stream_);
    for (const Hop& hop : hops) hop.level->begin(hop.verb, collective.note)->wait();
    if (finish) finish();
    done.record(*stream_);
    return std::make_unique<StreamWork>(std::move(done), std::move(collective));
  }

  std::optional<c10::Stream> stream_;
  Level inside_, across_;
};

}  // namespace

std::unique_ptr<Communicator> make_two_level_communicator(std::unique_ptr<Communicator> inside,
                                                          std::unique_ptr<Communicator> across) {
  return std::make_unique<TwoLevelCommunicator>(std::move(inside), std::move(across));
}

}  // namespace tessera
