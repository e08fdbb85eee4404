// An optimizer over flat local shards: it sees no names, shapes or ranks.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

namespace tessera {

// One class of a unit's parameters: contiguous f32 memory of this rank.
struct FlatShard {
  at::Tensor parameters, gradient;  // (n) f32
  std::vector<at::Tensor> state;    // one (n) f32 tensor for each of Optimizer::state_names()
  bool decay = false;
};

struct StepScalars {
  double lr = 0;
  std::int64_t step = 1;  // optimizer steps applied, this one included
  double gradient_divisor =
      1.0;  // gradients are divided by it: clipping and loss scale in one factor
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  virtual std::vector<std::string> state_names()
      const = 0;  // names of per-element state, as checkpoints record them
  virtual void step(FlatShard& shard, const StepScalars& scalars) = 0;
};

}  // namespace tessera
