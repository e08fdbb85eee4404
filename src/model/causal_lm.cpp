#include "model/causal_lm.h"

#include <ATen/TensorOperators.h>

#include "ops/cross_entropy.h"

namespace tessera {

double CausalLmObjective::weight(const BatchContext& context) const {
  const at::Tensor is_target = context.labels.ge(0);
  if (!context.loss_weights.defined())
    return static_cast<double>(is_target.sum().item<std::int64_t>());
  return (is_target * context.loss_weights).sum(at::kDouble).item<double>();
}

LossSum CausalLmObjective::forward(const Head& head, const at::Tensor& hidden,
                                   const BatchContext& context, double gradient_scale) {
  const CrossEntropySum sum = projection_cross_entropy(
      hidden.reshape({-1, hidden.size(-1)}), head.projection(), context.labels.reshape({-1}),
      context.loss_weights.defined() ? context.loss_weights.reshape({-1}) : context.loss_weights,
      {.vocab_size = head.vocab_size(),
       .gradient_scale = gradient_scale,
       .count_correct = context.mode != Mode::kTrain});
  return {sum.loss, sum.correct};
}

}  // namespace tessera
