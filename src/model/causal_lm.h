// The objective of language modelling: cross entropy of the next token.
#pragma once

#include "unit/objective.h"

namespace tessera {

// Labels are aligned by the data layer: labels[b, t] is the token after ids[b, t], kIgnoreLabel
// where there is none.
class CausalLmObjective final : public Objective {
 public:
  double weight(const BatchContext& context) const override;
  LossSum forward(const Head& head, const at::Tensor& hidden, const BatchContext& context,
                  double gradient_scale) override;
};

}  // namespace tessera
