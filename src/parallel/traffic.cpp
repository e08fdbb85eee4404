#include "parallel/traffic.h"

#include <string_view>
#include <utility>

namespace tessera {
namespace {

class CountingCommunicator final : public Communicator {
 public:
  CountingCommunicator(std::unique_ptr<Communicator> communicator, Link to_next, Traffic& traffic)
      : inner_(std::move(communicator)), to_next_(to_next), traffic_(traffic) {}

  int rank() const override { return inner_->rank(); }
  int world_size() const override { return inner_->world_size(); }
  std::string_view name() const override { return inner_->name(); }
  void note(std::string_view what) override { inner_->note(what); }

  std::unique_ptr<Work> all_reduce(at::Tensor tensor, ReduceOperation operation) override {
    count(Verb::kAllReduce, tensor);
    return inner_->all_reduce(std::move(tensor), operation);
  }
  std::unique_ptr<Work> all_gather(at::Tensor output, at::Tensor input) override {
    count(Verb::kAllGather, input);
    return inner_->all_gather(std::move(output), std::move(input));
  }
  std::unique_ptr<Work> reduce_scatter(at::Tensor output, at::Tensor input,
                                       ReduceOperation operation) override {
    count(Verb::kReduceScatter, output);
    return inner_->reduce_scatter(std::move(output), std::move(input), operation);
  }
  std::unique_ptr<Work> broadcast(at::Tensor tensor, int root) override {
    count(Verb::kBroadcast, tensor, (rank() + 1) % world_size() == root);
    return inner_->broadcast(std::move(tensor), root);
  }
  std::unique_ptr<Work> barrier() override { return inner_->barrier(); }

 private:
  void count(Verb verb, const at::Tensor& tensor, bool before_root = false) {
    const auto bytes = static_cast<std::int64_t>(tensor.nbytes());
    traffic_.add(verb, to_next_, ring_bytes(verb, bytes, world_size(), before_root));
  }

  std::unique_ptr<Communicator> inner_;
  Link to_next_;
  Traffic& traffic_;
};

}  // namespace

std::int64_t TrafficCounts::of(Link link) const {
  std::int64_t bytes = 0;
  for (const auto& of_verb : sent_bytes) bytes += of_verb[static_cast<std::size_t>(link)];
  return bytes;
}

void Traffic::add(Verb verb, Link link, std::int64_t bytes) {
  const std::scoped_lock lock(mutex_);
  counts_.sent_bytes[static_cast<std::size_t>(verb)][static_cast<std::size_t>(link)] += bytes;
}

TrafficCounts Traffic::counts() const {
  const std::scoped_lock lock(mutex_);
  return counts_;
}

void Traffic::reset() {
  const std::scoped_lock lock(mutex_);
  counts_ = {};
}

std::int64_t ring_bytes(Verb verb, std::int64_t bytes, int world_size, bool before_root) {
  if (world_size == 1) return 0;
  switch (verb) {
    case Verb::kAllGather:
    case Verb::kReduceScatter: return (world_size - 1) * bytes;
    case Verb::kAllReduce: return 2 * (world_size - 1) * bytes / world_size;
    case Verb::kBroadcast: return before_root ? 0 : bytes;
    case Verb::kBarrier: return 0;
  }
  return 0;
}

Link link_to_next(const RankGroup& group, int ranks_per_node) {
  if (ranks_per_node <= 0) return Link::kInsideNode;
  const int next = group.ranks[static_cast<std::size_t>((group.rank + 1) % group.size())];
  const int self = group.ranks[static_cast<std::size_t>(group.rank)];
  return self / ranks_per_node == next / ranks_per_node ? Link::kInsideNode : Link::kAcrossNodes;
}

std::unique_ptr<Communicator> make_counting_communicator(std::unique_ptr<Communicator> communicator,
                                                         Link to_next, Traffic& traffic) {
  return std::make_unique<CountingCommunicator>(std::move(communicator), to_next, traffic);
}

}  // namespace tessera
