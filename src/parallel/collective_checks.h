// Runs every verb of a communicator and compares with values worked out in f64, for tests of
// transports. Owns: the inputs, the bounds, and the digest of all results.
#pragma once

#include <ATen/ATen.h>

#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/hash.h"
#include "parallel/communicator.h"

namespace tessera::testing {

// Value of element i of rank r: the same wherever it is asked for; between -1 and 1, or an integer.
inline double value_of(int rank, std::int64_t i, at::ScalarType type) {
  auto x =
      static_cast<std::uint64_t>(i) * 0x9e3779b97f4a7c15U + static_cast<std::uint64_t>(rank + 1);
  x = (x ^ (x >> 29)) * 0xbf58476d1ce4e5b9U;
  x ^= x >> 32;
  if (type == at::kLong) return static_cast<double>(x % 2000001) - 1e6;
  return static_cast<double>(x % 2000001) / 1e6 - 1.0;
}

inline at::Tensor values_of(int rank, std::int64_t begin, std::int64_t count, at::ScalarType type) {
  at::Tensor values = at::empty({count}, at::kDouble);
  double* to = values.data_ptr<double>();
  for (std::int64_t i = 0; i < count; ++i) to[i] = value_of(rank, begin + i, type);
  return values.to(type);
}

class CollectiveChecks {
 public:
  explicit CollectiveChecks(Communicator& communicator)
      : communicator_(&communicator),
        rank_(communicator.rank()),
        world_size_(communicator.world_size()) {}

  // `count` elements a rank. Throws std::runtime_error for what differs.
  void run(std::int64_t count, at::ScalarType type) {
    what_ = std::string(c10::toString(type)) + " x " + std::to_string(count);
    all_reduce(count, type, ReduceOperation::kSum);
    all_reduce(count, type, ReduceOperation::kMax);
    reduce_scatter(count, type, ReduceOperation::kSum, false);
    reduce_scatter(count, type, ReduceOperation::kMax, true);
    all_gather(count, type, false);
    all_gather(count, type, true);
    for (int root = 0; root < world_size_; ++root) broadcast(count, type, root);
    communicator_->barrier()->wait();
  }

  // Of the results that all ranks share: equal bits give equal text.
  std::string digest() { return hash_.digest(); }

 private:
  void all_reduce(std::int64_t count, at::ScalarType type, ReduceOperation operation) {
    const at::Tensor tensor = values_of(rank_, 0, count, type);
    communicator_->all_reduce(tensor, operation)->wait();
    compare_reduced(tensor, 0, operation, "all_reduce");
    note(tensor);
  }

  void reduce_scatter(std::int64_t count, at::ScalarType type, ReduceOperation operation,
                      bool in_place) {
    const at::Tensor input = values_of(rank_, 0, count * world_size_, type);
    const at::Tensor output =
        in_place ? input.narrow(0, rank_ * count, count) : at::zeros({count}, type);
    communicator_->reduce_scatter(output, input, operation)->wait();
    compare_reduced(output, rank_ * count, operation, "reduce_scatter");
    // Each rank has another part: together they are what all ranks see.
    const at::Tensor all = at::zeros({count * world_size_}, type);
    communicator_->all_gather(all, output.clone())->wait();
    note(all);
  }

  void all_gather(std::int64_t count, at::ScalarType type, bool in_place) {
    const at::Tensor output = at::zeros({count * world_size_}, type);
    at::Tensor input = values_of(rank_, 7, count, type);
    if (in_place) {
      at::Tensor part = output.narrow(0, rank_ * count, count);
      part.copy_(input);
      input = part;
    }
    communicator_->all_gather(output, input)->wait();
    for (int rank = 0; rank < world_size_; ++rank) {
      require(at::equal(output.narrow(0, rank * count, count), values_of(rank, 7, count, type)),
              "all_gather: part of rank " + std::to_string(rank));
    }
    note(output);
  }

  void broadcast(std::int64_t count, at::ScalarType type, int root) {
    const at::Tensor tensor = values_of(rank_, 11, count, type);
    communicator_->broadcast(tensor, root)->wait();
    require(at::equal(tensor, values_of(root, 11, count, type)), "broadcast");
    note(tensor);
  }

  // One rounding to `type` is allowed, and the roundings of a sum in its accumulator.
  void compare_reduced(const at::Tensor& result, std::int64_t begin, ReduceOperation operation,
                       const std::string& verb) {
    const at::ScalarType type = result.scalar_type();
    const std::int64_t count = result.numel();
    at::Tensor exact = at::zeros({count}, at::kDouble), sizes = at::zeros({count}, at::kDouble);
    for (int rank = 0; rank < world_size_; ++rank) {
      const at::Tensor values = values_of(rank, begin, count, type).to(at::kDouble);
      exact = rank == 0                            ? values
              : operation == ReduceOperation::kSum ? exact + values
                                                   : at::maximum(exact, values);
      sizes += values.abs();
    }
    double unit = 0, sum_unit = 0;  // half a unit in the last place
    if (type == at::kBFloat16) unit = std::ldexp(1, -8), sum_unit = std::ldexp(1, -24);
    if (type == at::kHalf) unit = std::ldexp(1, -11), sum_unit = std::ldexp(1, -24);
    if (type == at::kFloat) sum_unit = std::ldexp(1, -24);
    if (type == at::kDouble)
      sum_unit = std::ldexp(1, -52);  // what it is compared with is rounded too
    if (operation == ReduceOperation::kMax) unit = sum_unit = 0;
    // The smallest f16 lies 2^-24 from the next: half of that is rounding too.
    const double floor = type == at::kHalf ? std::ldexp(1, -25) : 0;
    const at::Tensor bound = exact.abs() * unit + sizes * (sum_unit * world_size_) + floor;
    const at::Tensor good = (result.to(at::kDouble) - exact).abs() <= bound;
    require(good.all().item<bool>(), verb + ": a value differs from the sum in f64");
  }

  void note(const at::Tensor& tensor) {
    hash_.update(std::span(static_cast<const std::byte*>(tensor.const_data_ptr()),
                           static_cast<std::size_t>(tensor.nbytes())));
  }
  void require(bool condition, const std::string& failure) const {
    if (!condition) throw std::runtime_error(failure + " (" + what_ + ")");
  }

  Communicator* communicator_;
  int rank_, world_size_;
  std::string what_;
  ContentHash hash_;
};

}  // namespace tessera::testing
