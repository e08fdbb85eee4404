#include <array>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "parallel/collective_communicator.h"
#include "parallel/reduce_ranks.h"
#include "parallel/transports.h"

namespace tessera {
namespace {

// One collective of all ranks. The rank that comes last does the work for all.
struct Meeting {
  explicit Meeting(int world_size) : calls(static_cast<std::size_t>(world_size)) {}
  std::vector<Collective> calls;  // by rank
  std::vector<bool> arrived = std::vector<bool>(calls.size());
  std::size_t count = 0;
  bool done = false;
};

// What the ranks share.
struct Room {
  Room(int ranks, std::chrono::milliseconds limit)
      : world_size(ranks), timeout(limit), left(static_cast<std::size_t>(ranks)) {}
  int world_size;
  std::chrono::milliseconds timeout;
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::int64_t, std::shared_ptr<Meeting>> meetings;  // by number; those not yet done
  std::vector<bool> left;
  std::string failure;  // of the whole group
};

std::byte* at(const at::Tensor& tensor, std::int64_t element) {
  return static_cast<std::byte*>(tensor.data_ptr()) +
         element * static_cast<std::int64_t>(tensor.element_size());
}

void reduce_all(const std::vector<Collective>& calls, std::int64_t begin, void* output) {
  std::vector<const void*> inputs;
  for (const Collective& call : calls) inputs.push_back(at(call.input, begin));
  reduce_ranks(output, inputs, calls[0].count, calls[0].output.scalar_type(), calls[0].operation);
}

void perform(const std::vector<Collective>& calls) {
  const Collective& first = calls[0];
  if (first.verb == Verb::kBarrier) return;
  const auto bytes = static_cast<std::size_t>(first.count) * first.output.element_size();
  const auto copy = [bytes](void* to, const void* from) {
    if (to != from) std::memcpy(to, from, bytes);
  };
  switch (first.verb) {
    case Verb::kAllReduce:
      reduce_all(calls, 0, at(first.output, 0));
      for (const Collective& call : calls) copy(at(call.output, 0), at(first.output, 0));
      return;
    case Verb::kReduceScatter: {
      std::int64_t begin = 0;  // each output lies, at most, in its own rank's part of its input
      for (const Collective& call : calls) {
        reduce_all(calls, begin, at(call.output, 0));
        begin += first.count;
      }
      return;
    }
    case Verb::kAllGather:
      for (const Collective& to : calls) {
        std::int64_t begin = 0;
        for (const Collective& from : calls) {
          copy(at(to.output, begin), at(from.input, 0));
          begin += first.count;
        }
      }
      return;
    case Verb::kBroadcast:
      for (const Collective& call : calls) {
        copy(at(call.output, 0), at(calls[static_cast<std::size_t>(first.root)].output, 0));
      }
      return;
    case Verb::kBarrier: return;
  }
}

bool same(const Collective& a, const Collective& b) {
  return a.verb == b.verb && a.operation == b.operation && a.root == b.root && a.count == b.count &&
         (!a.output.defined() || a.output.scalar_type() == b.output.scalar_type());
}

class ThreadWork final : public Work {
 public:
  ThreadWork(std::shared_ptr<Room> room, std::shared_ptr<Meeting> meeting, std::string description)
      : room_(std::move(room)),
        meeting_(std::move(meeting)),
        description_(std::move(description)) {}

  void wait() override {
    std::unique_lock lock(room_->mutex);
    const auto over = [&] { return meeting_->done || !room_->failure.empty() || !gone().empty(); };
    const bool in_time = room_->changed.wait_for(lock, room_->timeout, over);
    if (meeting_->done) return;
    if (room_->failure.empty()) {
      room_->failure = in_time ? gone()
                               : "not all ranks arrived within " +
                                     std::to_string(room_->timeout.count()) + " ms";
      room_->changed.notify_all();
    }
    throw Error(ErrorKind::kComm, description_ + " failed: " + room_->failure, "threads");
  }

 private:
  // A rank that left before it came here; empty if there is none.
  std::string gone() const {
    for (std::size_t rank = 0; rank < room_->left.size(); ++rank) {
      if (room_->left[rank] && !meeting_->arrived[rank]) {
        return "rank " + std::to_string(rank) + " has left the group";
      }
    }
    return {};
  }

  std::shared_ptr<Room> room_;
  std::shared_ptr<Meeting> meeting_;
  std::string description_;
};

class ThreadCommunicator final : public CollectiveCommunicator {
 public:
  ThreadCommunicator(int rank, std::shared_ptr<Room> room)
      : CollectiveCommunicator(rank, room->world_size, "threads", at::Device(at::kCPU)),
        room_(std::move(room)) {}

  ~ThreadCommunicator() override {
    const std::scoped_lock lock(room_->mutex);
    room_->left[static_cast<std::size_t>(rank())] = true;
    room_->changed.notify_all();
  }

 private:
  std::unique_ptr<Work> start(Collective collective) override {
    const std::string description = collective.describe();
    const std::int64_t number = collective.number;
    const auto index = static_cast<std::size_t>(rank());
    const std::scoped_lock lock(room_->mutex);
    std::shared_ptr<Meeting>& place = room_->meetings[number];
    if (!place) place = std::make_shared<Meeting>(room_->world_size);
    const std::shared_ptr<Meeting> meeting = place;
    meeting->calls[index] = std::move(collective);
    meeting->arrived[index] = true;
    if (++meeting->count == meeting->calls.size()) finish(*meeting, number);
    return std::make_unique<ThreadWork>(room_, meeting, description);
  }

  void finish(Meeting& meeting, std::int64_t number) {
    for (const Collective& call : meeting.calls) {
      if (!same(call, meeting.calls[0])) {
        room_->failure = "ranks are at different operations: " + call.describe() + " and " +
                         meeting.calls[0].describe();
      }
    }
    if (room_->failure.empty()) {
      perform(meeting.calls);
      meeting.done = true;
    }
    for (Collective& call : meeting.calls) call = {};
    room_->meetings.erase(number);
    room_->changed.notify_all();
  }

  std::shared_ptr<Room> room_;
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> make_thread_communicators(
    int world_size, std::chrono::milliseconds timeout) {
  const auto room = std::make_shared<Room>(world_size, timeout);
  std::vector<std::unique_ptr<Communicator>> ranks;
  for (int rank = 0; rank < world_size; ++rank) {
    ranks.push_back(std::make_unique<ThreadCommunicator>(rank, room));
  }
  return ranks;
}

}  // namespace tessera
