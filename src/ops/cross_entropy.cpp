#include "ops/cross_entropy.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_log_softmax.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "base/error.h"

namespace tessera {
namespace {

// Hands the gradient that forward already made to autograd.
class PrecomputedGradient : public torch::autograd::Function<PrecomputedGradient> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& hidden,
                            const at::Tensor& loss, const at::Tensor& gradient) {
    (void)hidden;
    context->save_for_backward({gradient});
    return loss.clone();
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list&) {
    // The gradient of the loss is 1 by contract: the scale is in it already.
    return {context->get_saved_variables()[0], {}, {}};
  }
};

// d loss / d logits = weight · (softmax − one-hot), in the memory of the logarithms.
at::Tensor logits_gradient(const at::Tensor& log_probability, const at::Tensor& index,
                           const at::Tensor& row_weight) {
  const at::Tensor probability = log_probability.exp_();
  probability.scatter_add_(1, index, at::Tensor(-at::ones_like(index, probability.options())));
  if (row_weight.defined()) probability.mul_(row_weight.unsqueeze(1));
  return probability;
}

// Adds probabilitiesᵀ · hidden to the projection's gradient.
void add_projection_gradient(const at::Tensor& probabilities, const at::Tensor& hidden,
                             double scale, const at::Tensor& gradient) {
  if (probabilities.scalar_type() == gradient.scalar_type()) {
    gradient.addmm_(probabilities.t(), hidden, 1, scale);
  } else {
    gradient.add_(at::mm(probabilities.t(), hidden), scale);
  }
}

// The rows of the projection's gradient buffer that belong to tokens.
at::Tensor token_gradient(const at::Tensor& projection, std::int64_t vocab_size) {
  if (!projection.grad().defined()) {
    throw Error(ErrorKind::kInternal, "the projection has no gradient buffer");
  }
  return projection.grad().narrow(0, 0, vocab_size);
}

}  // namespace

// Chunks of one size: a short last one would multiply as slowly as it is short.
std::int64_t cross_entropy_chunk(std::int64_t rows, const CrossEntropyOptions& options) {
  const std::int64_t most =
      std::max<std::int64_t>(options.chunk_bytes / (4 * options.vocab_size), 16);
  const std::int64_t chunks = std::max<std::int64_t>((rows + most - 1) / most, 1);
  return std::max<std::int64_t>((rows + chunks - 1) / chunks, 1);
}

CrossEntropySum projection_cross_entropy(const at::Tensor& hidden, const at::Tensor& projection,
                                         const at::Tensor& labels, const at::Tensor& weights,
                                         const CrossEntropyOptions& options) {
  const std::int64_t rows = hidden.size(0);
  const std::int64_t chunk = cross_entropy_chunk(rows, options);
  const bool train =
      at::GradMode::is_enabled() && (hidden.requires_grad() || projection.requires_grad());
  const at::NoGradGuard no_grad;
  const at::Tensor tokens = projection.detach().narrow(0, 0, options.vocab_size);
  const at::Tensor hidden_values = hidden.detach();
  at::Tensor weight_gradient;
  if (train && projection.requires_grad()) {
    weight_gradient = token_gradient(projection, options.vocab_size);
  }
  const bool need_hidden_gradient = train && hidden.requires_grad();
  at::Tensor hidden_gradient = need_hidden_gradient ? at::empty_like(hidden_values) : at::Tensor();
  const auto f32 = hidden.options().dtype(at::kFloat);
  // f64: sums of many terms must not depend on how they are chunked by more than rounding of one
  // number.
  at::Tensor loss = at::zeros({}, f32.dtype(at::kDouble));
  at::Tensor correct = options.count_correct ? at::zeros({}, f32.dtype(at::kDouble)) : at::Tensor();

  for (std::int64_t first = 0; first < rows; first += chunk) {
    const std::int64_t count = std::min(chunk, rows - first);
    const at::Tensor h = hidden_values.narrow(0, first, count);
    const at::Tensor label = labels.narrow(0, first, count);
    const at::Tensor is_target = label.ge(0);
    at::Tensor row_weight = is_target.to(at::kFloat);
    if (weights.defined()) row_weight = row_weight * weights.narrow(0, first, count);
    const at::Tensor index = label.clamp_min(0).unsqueeze(1);

    at::Tensor logits = at::matmul(h, tokens.t());
    if (options.count_correct) {
      correct += (at::argmax(logits, 1).eq(label).to(at::kFloat) * row_weight).sum(at::kDouble);
    }
    at::Tensor log_probability = logits.to(at::kFloat);
    logits.reset();
    // In place: a row is read whole before it is written.
    at::_log_softmax_out(log_probability, log_probability, 1, false);
    loss -= (log_probability.gather(1, index).squeeze(1) * row_weight).sum(at::kDouble);
    if (!train) continue;

    const bool weighs = weights.defined() || !is_target.all().item<bool>();
    const at::Tensor probability =
        logits_gradient(log_probability, index, weighs ? row_weight : at::Tensor())
            .to(hidden.scalar_type());
    if (need_hidden_gradient) {
      at::Tensor out = hidden_gradient.narrow(0, first, count);
      at::mm_out(out, probability, tokens);
    }
    if (weight_gradient.defined()) {
      add_projection_gradient(probability, h, options.gradient_scale, weight_gradient);
    }
  }
  loss = loss.to(at::kFloat);
  if (options.count_correct) correct = correct.to(at::kFloat);
  if (need_hidden_gradient) {
    hidden_gradient.mul_(options.gradient_scale);
    const at::AutoGradMode grad(true);
    loss = PrecomputedGradient::apply(hidden, loss, hidden_gradient);
  }
  return {loss, correct};
}

}  // namespace tessera
