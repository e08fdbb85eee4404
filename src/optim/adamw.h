// AdamW (Loshchilov and Hutter 2019), as torch.optim.AdamW computes it: one fused call a flat
// shard.
#pragma once

#include "unit/optimizer.h"

namespace tessera {

struct AdamWOptions {
  double beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8;
  double weight_decay = 0.1;  // of shards with decay
};

class AdamW final : public Optimizer {
 public:
  explicit AdamW(const AdamWOptions& options) : options_(options) {}
  std::vector<std::string> state_names() const override { return {"exp_avg", "exp_avg_sq"}; }
  void step(FlatShard& shard, const StepScalars& scalars) override;

 private:
  AdamWOptions options_;
};

}  // namespace tessera
