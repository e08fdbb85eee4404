#include "model/gpt2_cost.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/variable.h>

#include <string>

#include "model/causal_lm.h"
#include "ops/caching_allocator.h"

namespace tessera {
namespace {

// Bytes of tensors while a unit works, as the allocator counts them.
struct Measured {
  std::int64_t output = 0, kept = 0, forward_peak = 0, backward_peak = 0, lean_peak = 0;
};

struct CostCase {
  Gpt2CostInputs inputs;
  Keep keep = Keep::kAll;
  std::string name() const {
    const Gpt2Shape& shape = inputs.shape;
    return "rows " + std::to_string(inputs.rows) + ", block " + std::to_string(inputs.block_size) +
           ", width " + std::to_string(shape.n_embd) + ", heads " + std::to_string(shape.n_head) +
           ", vocabulary " + std::to_string(shape.vocab_size) + ", dropout " +
           std::to_string(shape.attn_dropout) + " " + std::to_string(shape.resid_dropout) +
           ", element " + std::to_string(inputs.compute_bytes) +
           (keep == Keep::kAll ? "" : ", products");
  }
};

class UnitBench {
 public:
  explicit UnitBench(const CostCase& of) : case_(of), chain_(make_gpt2(of.inputs.shape)) {
    const auto f32 = at::TensorOptions().dtype(at::kFloat);
    type_ = of.inputs.compute_bytes == 4 ? at::kFloat : at::kBFloat16;
    for (const auto& unit : chain_.units) {
      for (const ParameterSpec& parameter : unit->parameters()) {
        at::Tensor weight = at::randn(parameter.shape, f32).mul_(0.02).to(type_);
        weight.set_requires_grad(true);
        weight.mutable_grad() = at::zeros(parameter.shape, f32);
        *parameter.slot = weight;
        if (!chain_.ties.empty() && parameter.name == chain_.ties.front().owner) {
          *chain_.ties.front().user_slot = weight;
        }
      }
    }
    const std::int64_t rows = of.inputs.rows, length = of.inputs.block_size;
    context_.ids = at::randint(of.inputs.shape.vocab_size, {rows, length}, f32.dtype(at::kLong));
    context_.labels = context_.ids;
    context_.keep = of.keep;
  }

  Measured measure(std::size_t index) {
    run(index);  // what operations make once
    Measured measured = run(index);
    measured.lean_peak = run_lean(index);
    return measured;
  }

 private:
  at::Tensor input_of(std::size_t index) const {
    if (index == 0) return {};
    const Gpt2CostInputs& inputs = case_.inputs;
    return at::randn({inputs.rows, inputs.block_size, inputs.shape.n_embd}, at::kFloat).to(type_);
  }

  at::Tensor forward(std::size_t index, const at::Tensor& input) {
    const at::Tensor output = chain_.units[index]->forward(input, context_);
    if (index + 1 < chain_.units.size()) return output;
    return CausalLmObjective().forward(chain_.head(), output, context_, 1.0).loss;
  }

  Measured run(std::size_t index) {
    CachingAllocator& allocator = install_caching_allocator();
    at::Tensor input = input_of(index);
    if (input.defined()) input.set_requires_grad(true);
    const auto in_use = [&] { return allocator.statistics().in_use; };
    Measured measured;
    std::int64_t before = in_use();
    allocator.reset_peak();
    at::Tensor output = forward(index, input);
    measured.forward_peak = allocator.statistics().peak_in_use - before;
    at::Tensor gradient = at::ones_like(output);
    const auto edge = torch::autograd::impl::gradient_edge(output);
    const std::int64_t with_output = in_use();
    output.reset();
    measured.output = with_output - in_use();
    measured.kept = in_use() - before - measured.output;  // less the gradient, which is as large
    before = in_use();
    allocator.reset_peak();
    torch::autograd::Engine::get_default_engine().execute({edge}, {std::move(gradient)}, false,
                                                          false, true, {});
    measured.backward_peak = allocator.statistics().peak_in_use - before;
    return measured;
  }

  std::int64_t run_lean(std::size_t index) {
    CachingAllocator& allocator = install_caching_allocator();
    const at::Tensor input = input_of(index);
    const at::NoGradGuard no_grad;
    const std::int64_t before = allocator.statistics().in_use;
    allocator.reset_peak();
    forward(index, input);
    return allocator.statistics().peak_in_use - before;
  }

  CostCase case_;
  Chain chain_;
  at::ScalarType type_ = at::kFloat;
  BatchContext context_;
};

Gpt2CostInputs inputs_of(std::int64_t width, double dropout, std::int64_t compute_bytes) {
  // Blocks of 255 tokens: the allocator rounds sizes up to 64 KiB, which is little of these.
  return {.shape = {.n_layer = 1,
                    .n_head = 4,
                    .n_embd = width,
                    .n_positions = 300,
                    .vocab_size = 3000,
                    .padded_vocab_size = 3008,
                    .embd_dropout = dropout,
                    .attn_dropout = dropout,
                    .resid_dropout = dropout},
          .rows = width > 256 ? 2 : 8,
          .block_size = 255,
          .compute_bytes = compute_bytes};
}

// The figures are within 3 % of what the allocator counts, and of what is small: 256 KiB for blocks
// that fit loosely, or the half MiB that torch's products of 16-bit numbers take for themselves.
TEST(Gpt2CostTest, FiguresAreWhatUnitsTake) {
  std::vector<CostCase> cases;
  for (const std::int64_t compute_bytes : {4, 2}) {
    for (const Keep keep : {Keep::kAll, Keep::kProducts}) {
      cases.push_back({inputs_of(256, 0, compute_bytes), keep});
    }
    cases.push_back({inputs_of(256, 0.1, compute_bytes), Keep::kAll});
    cases.push_back({inputs_of(512, 0, compute_bytes), Keep::kAll});  // weights weigh more
  }
  for (const CostCase& of : cases) {
    const std::vector<UnitCost> costs = gpt2_costs(of.inputs);
    UnitBench bench(of);
    for (std::size_t unit = 0; unit < costs.size(); ++unit) {
      const Measured measured = bench.measure(unit);
      const TrainingCost& training = costs[unit].keeping(of.keep);
      const auto near = [&](const char* what, std::int64_t predicted, std::int64_t found) {
        const int small = of.inputs.compute_bytes == 4 ? 256 << 10 : 512 << 10;
        EXPECT_NEAR(static_cast<double>(predicted), static_cast<double>(found),
                    0.03 * static_cast<double>(found) + small)
            << what << " of unit " << unit << ": " << of.name();
      };
      near("output", costs[unit].output_bytes, measured.output);
      near("kept", training.kept_bytes, measured.kept);
      near("forward's peak", training.forward_peak, measured.forward_peak);
      near("backward's peak", training.backward_peak, measured.backward_peak);
      near("forward's peak without gradients", costs[unit].lean_peak, measured.lean_peak);
    }
  }
}

TEST(Gpt2CostTest, ArithmeticIsThatOfTheFormula) {
  const Gpt2CostInputs inputs{.shape = {}, .rows = 2, .block_size = 256};
  double flops = 0;
  for (const UnitCost& cost : gpt2_costs(inputs)) {
    flops += cost.forward_flops + cost.all.backward_flops;
  }
  EXPECT_NEAR(flops / (512 * flops_per_token(inputs.shape, 256)), 1, 1e-9);
}

}  // namespace
}  // namespace tessera
