#include "ops/attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/softmax.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cmath>
#include <limits>

namespace tessera {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// f32 for f32 and the half types, f64 for f64.
at::ScalarType softmax_type(const at::Tensor& x) {
  return x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

at::Tensor probabilities(const at::Tensor& query, const at::Tensor& key,
                         const at::Tensor& may_attend, double scale) {
  at::Tensor scores = at::matmul(query * scale, key.transpose(2, 3)).to(softmax_type(query));
  scores.masked_fill_(may_attend.logical_not(), -std::numeric_limits<double>::infinity());
  return at::softmax(scores, -1);
}

class AttentionWithDropout : public torch::autograd::Function<AttentionWithDropout> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& query,
                            const at::Tensor& key, const at::Tensor& value,
                            const at::Tensor& may_attend, double p, std::int64_t seed,
                            std::int64_t step, std::int64_t site, std::int64_t first_row) {
    const double scale = 1.0 / std::sqrt(static_cast<double>(query.size(3)));
    context->save_for_backward({query, key, value, may_attend});
    context->saved_data["p"] = p;
    context->saved_data["key"] = std::vector<std::int64_t>{seed, step, site, first_row};
    const at::Tensor probability = probabilities(query, key, may_attend, scale);
    return at::matmul(keyed_dropout(probability, p, key_of({seed, step, site, first_row}))
                          .to(value.scalar_type()),
                      value);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &query = saved[0], &key = saved[1], &value = saved[2],
                     &gradient = gradients[0];
    const double p = context->saved_data["p"].toDouble();
    const DropoutKey dropout_key = key_of(context->saved_data["key"].toIntVector());
    const double scale = 1.0 / std::sqrt(static_cast<double>(query.size(3)));
    const at::Tensor probability = probabilities(query, key, saved[3], scale);
    at::Tensor value_gradient = at::matmul(
        keyed_dropout(probability, p, dropout_key).to(value.scalar_type()).transpose(2, 3),
        gradient);
    // Through dropout, then through the softmax: dS = P · (dP − Σ dP · P).
    at::Tensor scores_gradient = keyed_dropout(
        at::matmul(gradient, value.transpose(2, 3)).to(probability.scalar_type()), p, dropout_key);
    scores_gradient.mul_(probability);
    scores_gradient.sub_(probability * scores_gradient.sum(-1, true));
    const at::Tensor scaled = (scores_gradient * scale).to(query.scalar_type());
    return {at::matmul(scaled, key),
            at::matmul(scaled.transpose(2, 3), query),
            value_gradient,
            {},
            {},
            {},
            {},
            {},
            {}};
  }

 private:
  static DropoutKey key_of(const std::vector<std::int64_t>& values) {
    return {static_cast<std::uint64_t>(values[0]), values[1], static_cast<std::uint32_t>(values[2]),
            values[3]};
  }
};

}  // namespace

at::Tensor attention_with_dropout(const at::Tensor& query, const at::Tensor& key,
                                  const at::Tensor& value, const at::Tensor& may_attend, double p,
                                  const DropoutKey& dropout_key) {
  return AttentionWithDropout::apply(query, key, value, may_attend, p,
                                     static_cast<std::int64_t>(dropout_key.seed), dropout_key.step,
                                     std::int64_t{dropout_key.site}, dropout_key.first_row);
}

}  // namespace tessera
