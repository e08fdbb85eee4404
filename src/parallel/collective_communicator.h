// The part that all transports share: checks a verb's arguments and turns it into one value. Owns:
// the contract of communicator.h as far as one rank can check it. Not: moving bytes.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "parallel/communicator.h"

namespace tessera {

enum class Verb { kAllReduce, kAllGather, kReduceScatter, kBroadcast, kBarrier };
std::string_view to_string(Verb verb);

// One call of a verb. Holds its tensors.
struct Collective {
  Verb verb = Verb::kBarrier;
  ReduceOperation operation = ReduceOperation::kSum;
  int root = 0;              // of a broadcast
  at::Tensor output, input;  // one tensor twice where the verb works in place; none for a barrier
  std::int64_t count = 0;    // elements of one rank: of `output` or, for kAllGather, of `input`
  std::int64_t number = 0;   // counted from 1 by the communicator
  std::string note;          // what it is for (Communicator::note)

  // "all_reduce 17 (gradients of h.3)"
  std::string describe() const;
};

// A place for messages: "rank 1 of 4, shm".
std::string describe_rank(const Communicator& communicator);

// Checks, counts, and hands over to start(). Empty tensors are done at once, on all ranks alike.
class CollectiveCommunicator : public Communicator {
 public:
  // device: where tensors must lie; anywhere without one.
  CollectiveCommunicator(int rank, int world_size, std::string name,
                         std::optional<at::Device> device);

  int rank() const final { return rank_; }
  int world_size() const final { return world_size_; }
  std::string_view name() const final { return name_; }
  void note(std::string_view what) final { note_ = what; }

  std::unique_ptr<Work> all_reduce(at::Tensor tensor, ReduceOperation operation) final;
  std::unique_ptr<Work> all_gather(at::Tensor output, at::Tensor input) final;
  std::unique_ptr<Work> reduce_scatter(at::Tensor output, at::Tensor input,
                                       ReduceOperation operation) final;
  std::unique_ptr<Work> broadcast(at::Tensor tensor, int root) final;
  std::unique_ptr<Work> barrier() final;

 protected:
  // Never called with empty tensors. Returns before the operation is done, where the transport can.
  virtual std::unique_ptr<Work> start(Collective collective) = 0;

 private:
  std::unique_ptr<Work> submit(Collective collective);
  void check(const Collective& collective, const at::Tensor& tensor, std::int64_t count,
             const char* what) const;

  int rank_, world_size_;
  std::string name_, note_;
  std::optional<at::Device> device_;
  std::int64_t number_ = 0;
};

// An operation that was done by the time it was asked for.
std::unique_ptr<Work> finished_work();

}  // namespace tessera
