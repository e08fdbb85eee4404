// What is minimised: owns the loss, its weight and its metrics. Not: the average over the global
// batch (parallel/).
#pragma once

#include <ATen/core/Tensor.h>

#include "unit/unit.h"

namespace tessera {

struct LossSum {
  at::Tensor loss;  // f32 scalar: sum over targets of weight × loss; its graph leads to `hidden`
  at::Tensor correct;  // f32 scalar: weight of the targets predicted right; undefined in training
};

class Objective {
 public:
  virtual ~Objective() = default;
  // Sum of the weights of the targets in a micro-batch: known before any forward, so that the loss
  // can be divided by the sum over the global batch.
  virtual double weight(const BatchContext& context) const = 0;
  // hidden: (B, T, C), the Head's output. gradient_scale multiplies every gradient (not the
  // returned loss): 1 / global weight, times the loss scale of f16. When gradients are enabled,
  // backward of `loss` with gradient 1 gives the scaled gradient of `hidden`; the projection's
  // gradient has been added to its .grad() when this returns.
  virtual LossSum forward(const Head& head, const at::Tensor& hidden, const BatchContext& context,
                          double gradient_scale) = 0;
};

}  // namespace tessera
