#include "ops/linear.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/gelu_backward.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/native_layer_norm_backward.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include <array>
#include <tuple>

namespace tessera {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Tensor weight_gradient(const at::Tensor& x, const at::Tensor& gradient,
                           const at::Tensor& weight) {
  if (!weight.grad().defined()) return at::mm(x.t(), gradient);
  const at::Tensor& target = weight.grad();
  if (target.scalar_type() == x.scalar_type()) {
    target.addmm_(x.t(), gradient);
  } else {
    target.add_(at::mm(x.t(), gradient));
  }
  return {};
}

at::Tensor bias_gradient(const at::Tensor& gradient, const at::Tensor& bias) {
  const at::Tensor sum =
      gradient.sum({0}, false, gradient.scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
  if (!bias.grad().defined()) return sum.to(bias.scalar_type());
  bias.mutable_grad().add_(sum);
  return {};
}

class Linear : public torch::autograd::Function<Linear> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const at::Tensor& bias) {
    context->save_for_backward({x, weight, bias});
    return at::addmm(bias, x, weight);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1], &bias = saved[2], &gradient = gradients[0];
    variable_list result(3);
    if (context->needs_input_grad(0)) result[0] = at::mm(gradient, weight.t());
    if (context->needs_input_grad(1)) result[1] = weight_gradient(x, gradient, weight);
    if (context->needs_input_grad(2)) result[2] = bias_gradient(gradient, bias);
    return result;
  }
};

class GeluLinear : public torch::autograd::Function<GeluLinear> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const at::Tensor& bias) {
    context->save_for_backward({x, weight, bias});
    return at::addmm(bias, at::gelu(x, "tanh"), weight);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1], &bias = saved[2], &gradient = gradients[0];
    variable_list result(3);
    if (context->needs_input_grad(1))
      result[1] = weight_gradient(at::gelu(x, "tanh"), gradient, weight);
    if (context->needs_input_grad(2)) result[2] = bias_gradient(gradient, bias);
    if (context->needs_input_grad(0))
      result[0] = at::gelu_backward(at::mm(gradient, weight.t()), x, "tanh");
    return result;
  }
};

class NormLinear : public torch::autograd::Function<NormLinear> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x,
                            const at::Tensor& norm_weight, const at::Tensor& norm_bias,
                            double epsilon, const at::Tensor& weight, const at::Tensor& bias) {
    const auto [normed, mean, rstd] =
        at::native_layer_norm(x, {x.size(1)}, norm_weight, norm_bias, epsilon);
    context->save_for_backward({x, norm_weight, norm_bias, mean, rstd, weight, bias});
    context->saved_data["epsilon"] = epsilon;
    return at::addmm(bias, normed, weight);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &norm_weight = saved[1], &norm_bias = saved[2],
                     &weight = saved[5], &bias = saved[6], &gradient = gradients[0];
    variable_list result(6);
    if (context->needs_input_grad(3)) {
      const double epsilon = context->saved_data["epsilon"].toDouble();
      const at::Tensor normed =
          std::get<0>(at::native_layer_norm(x, {x.size(1)}, norm_weight, norm_bias, epsilon));
      result[4] = weight_gradient(normed, gradient, weight);
    }
    if (context->needs_input_grad(4)) result[5] = bias_gradient(gradient, bias);
    const std::array<bool, 3> wanted = {context->needs_input_grad(0), context->needs_input_grad(1),
                                        context->needs_input_grad(2)};
    if (!wanted[0] && !wanted[1] && !wanted[2]) return result;
    std::tie(result[0], result[1], result[2]) =
        at::native_layer_norm_backward(at::mm(gradient, weight.t()), x, {x.size(1)}, saved[3],
                                       saved[4], norm_weight, norm_bias, wanted);
    return result;
  }
};

class Embedding : public torch::autograd::Function<Embedding> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& weight,
                            const at::Tensor& ids) {
    context->save_for_backward({weight, ids});
    std::vector<std::int64_t> shape = ids.sizes().vec();
    shape.push_back(weight.size(1));
    return weight.index_select(0, ids.reshape({-1})).view(shape);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &weight = saved[0], ids = saved[1].reshape({-1});
    const bool direct = weight.grad().defined();
    at::Tensor target = direct ? weight.grad() : at::zeros_like(weight);
    target.index_add_(0, ids, gradients[0].reshape({-1, weight.size(1)}).to(target.scalar_type()));
    return {direct ? at::Tensor() : target, at::Tensor()};
  }
};

}  // namespace

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  return Linear::apply(x, weight, bias);
}

at::Tensor gelu_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  return GeluLinear::apply(x, weight, bias);
}

at::Tensor norm_linear(const at::Tensor& x, const at::Tensor& norm_weight,
                       const at::Tensor& norm_bias, double epsilon, const at::Tensor& weight,
                       const at::Tensor& bias) {
  return NormLinear::apply(x, norm_weight, norm_bias, epsilon, weight, bias);
}

at::Tensor embed(const at::Tensor& weight, const at::Tensor& ids) {
  return Embedding::apply(weight, ids);
}

}  // namespace tessera
