#include "optim/adamw.h"

#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/full.h>

namespace tessera {

void AdamW::step(FlatShard& shard, const StepScalars& scalars) {
  const auto f32 = shard.parameters.options();
  const at::Tensor step = at::full({}, static_cast<double>(scalars.step), f32);
  std::optional<at::Tensor> divisor;
  if (scalars.gradient_divisor != 1.0) divisor = at::full({}, scalars.gradient_divisor, f32);
  at::_fused_adamw_({shard.parameters}, {shard.gradient}, {shard.state[0]}, {shard.state[1]}, {},
                    {step}, scalars.lr, options_.beta1, options_.beta2,
                    shard.decay ? options_.weight_decay : 0.0, options_.epsilon,
                    /*amsgrad=*/false, /*maximize=*/false, divisor, std::nullopt);
}

}  // namespace tessera
