// The verbs by which ranks talk. One file a transport (registry: transports.h). Owns: the contract.
// Not: which ranks form a group (Mesh), nor what happens when one is missing (rank_watch.h).
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string_view>

namespace tessera {

enum class ReduceOperation { kSum, kMax };

// An operation under way. It holds its tensors; they must not be touched before wait() returns.
// Destroyed without wait(): the operation still runs to its end or failure.
class [[nodiscard]] Work {
 public:
  virtual ~Work() = default;
  // Until the result is there, for this thread or (on a GPU) for the current stream. Error{kComm}
  // with the transport's reason, where a peer is gone.
  virtual void wait() = 0;
};

// All ranks of the group call the same verbs in the same order with the same shapes and types; one
// thread a communicator. Tensors are contiguous and lie on the communicator's device. Results are
// the same bits on every rank, and from run to run: a sum's order depends on the world size alone.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int world_size() const = 0;
  virtual std::string_view name() const = 0;  // of the transport: "gloo", "shm", …

  // In place. f32, f64, bf16, f16 (these two are added in f32 and rounded once), i64.
  virtual std::unique_ptr<Work> all_reduce(at::Tensor tensor, ReduceOperation operation) = 0;
  // output: (world_size * n), input: (n); input may be this rank's part of output.
  virtual std::unique_ptr<Work> all_gather(at::Tensor output, at::Tensor input) = 0;
  // output: (n), input: (world_size * n); output may be this rank's part of input, whose other
  // parts may be overwritten.
  virtual std::unique_ptr<Work> reduce_scatter(at::Tensor output, at::Tensor input,
                                               ReduceOperation operation) = 0;
  virtual std::unique_ptr<Work> broadcast(at::Tensor tensor, int root) = 0;
  virtual std::unique_ptr<Work> barrier() = 0;

  // What the next operations are for ("gradients of h.3"), in messages about failures.
  virtual void note(std::string_view) {}
};

// One process: rank 0 of 1, for which every verb is done at once.
std::unique_ptr<Communicator> make_single_process_communicator();

}  // namespace tessera
