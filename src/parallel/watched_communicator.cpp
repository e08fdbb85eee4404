#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "parallel/rank_watch.h"

namespace tessera {
namespace {

class WatchedWork final : public Work {
 public:
  WatchedWork(std::unique_ptr<Work> work, RankWatch& watch, const std::vector<int>& group,
              std::string what)
      : work_(std::move(work)), watch_(watch), group_(group), what_(std::move(what)) {}

  void wait() override {
    watch_.enter(what_);
    try {
      work_->wait();
    } catch (const Error& error) {
      throw watch_.explain(error, group_);
    }
    watch_.leave();
  }

 private:
  std::unique_ptr<Work> work_;
  RankWatch& watch_;
  std::vector<int> group_;
  std::string what_;
};

class WatchedCommunicator final : public Communicator {
 public:
  WatchedCommunicator(std::unique_ptr<Communicator> communicator, RankWatch& watch,
                      at::Device device, int checked_operations, const RankGroup& group)
      : inner_(std::move(communicator)),
        watch_(watch),
        device_(device),
        to_check_(checked_operations),
        ranks_(group.ranks),
        among_(among(group)) {}

  int rank() const override { return inner_->rank(); }
  int world_size() const override { return inner_->world_size(); }
  std::string_view name() const override { return inner_->name(); }
  void note(std::string_view purpose) override { purpose_ = purpose; }

  std::unique_ptr<Work> all_reduce(at::Tensor tensor, ReduceOperation operation) override {
    return run("all_reduce", tensor.numel(), [&] { return inner_->all_reduce(tensor, operation); });
  }
  std::unique_ptr<Work> all_gather(at::Tensor output, at::Tensor input) override {
    return run("all_gather", input.numel(), [&] { return inner_->all_gather(output, input); });
  }
  std::unique_ptr<Work> reduce_scatter(at::Tensor output, at::Tensor input,
                                       ReduceOperation operation) override {
    return run("reduce_scatter", output.numel(),
               [&] { return inner_->reduce_scatter(output, input, operation); });
  }
  std::unique_ptr<Work> broadcast(at::Tensor tensor, int root) override {
    return run("broadcast", tensor.numel(), [&] { return inner_->broadcast(tensor, root); });
  }
  std::unique_ptr<Work> barrier() override {
    return run("barrier", 0, [&] { return inner_->barrier(); });
  }

 private:
  template <typename Begin>
  std::unique_ptr<Work> run(std::string_view verb, std::int64_t elements, const Begin& begin) {
    std::string what = std::string(verb) + among_ + ", " + purpose_;
    if (to_check_ > 0) {
      --to_check_;
      compare(what + ", " + std::to_string(elements) + " elements");
    }
    try {
      return std::make_unique<WatchedWork>(begin(), watch_, ranks_, std::move(what));
    } catch (const Error& error) {
      throw watch_.explain(error, ranks_);
    }
  }

  // Every rank tells what it is about to do, in texts of one length, so that this exchange itself
  // fits together where the operations do not.
  void compare(const std::string& mine) {
    constexpr std::int64_t kWords = 20, kBytes = kWords * 8;
    const at::Tensor input = at::zeros({kWords}, at::kLong);
    std::memcpy(input.mutable_data_ptr<std::int64_t>(), mine.data(),
                std::min<std::size_t>(mine.size(), kBytes - 1));
    const at::Tensor output =
        at::empty({kWords * world_size()}, at::TensorOptions().dtype(at::kLong).device(device_));
    watch_.enter("the check of the first operations");
    try {
      inner_->all_gather(output, input.to(device_))->wait();
    } catch (const Error& error) {
      throw watch_.explain(error, ranks_);
    }
    watch_.leave();
    const at::Tensor host = output.cpu();
    const char* texts = reinterpret_cast<const char*>(host.const_data_ptr<std::int64_t>());
    const std::string first = texts;
    for (int other = 1; other < world_size(); ++other) {
      const std::string its = texts + other * kBytes;
      if (its == first) continue;
      throw Error(ErrorKind::kInternal,
                  "ranks disagree on what comes next: rank " + world_rank(other) +
                      " is about to do '" + its + "', rank " + world_rank(0) + " '" + first + "'",
                  "the first step", "All ranks must run the same build with the same config.");
    }
  }

  std::string world_rank(int rank_of_group) const {
    return std::to_string(ranks_.empty() ? rank_of_group
                                         : ranks_[static_cast<std::size_t>(rank_of_group)]);
  }

  // " among ranks 0, 2, 4", of the first few; nothing for the world.
  static std::string among(const RankGroup& group) {
    constexpr std::size_t kShown = 8;
    std::string text;
    for (std::size_t i = 0; i < std::min(group.ranks.size(), kShown); ++i) {
      text += (i == 0 ? " among ranks " : ", ") + std::to_string(group.ranks[i]);
    }
    return text + (group.ranks.size() > kShown ? ", …" : "");
  }

  std::unique_ptr<Communicator> inner_;
  RankWatch& watch_;
  at::Device device_;
  int to_check_;
  std::vector<int> ranks_;  // of the world; empty: the same numbers
  std::string among_;
  std::string purpose_;
};

}  // namespace

std::unique_ptr<Communicator> make_watched_communicator(std::unique_ptr<Communicator> communicator,
                                                        RankWatch& watch, at::Device device,
                                                        int checked_operations,
                                                        const RankGroup& group) {
  return std::make_unique<WatchedCommunicator>(std::move(communicator), watch, device,
                                               checked_operations, group);
}

}  // namespace tessera
