// GPT-2 through units, schedule and executor against values from independent programs: a NumPy
// program in f64 (shared/data/gpt2_tiny) and a PyTorch program (tests/reference/gpt2_steps.py).
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>

#include "formats/safetensors.h"
#include "model/causal_lm.h"
#include "model/gpt2.h"
#include "optim/adamw.h"
#include "optim/lr_schedule.h"
#include "parallel/executor.h"

namespace tessera {
namespace {

const Path kTiny = Path(TESSERA_SHARED_DATA) / "gpt2_tiny";
const Gpt2Shape kRandomShape{.n_layer = 5,
                             .n_head = 4,
                             .n_embd = 32,
                             .n_positions = 512,
                             .vocab_size = 1000,
                             .padded_vocab_size = 1000};
const Gpt2Shape kBiasedShape{.n_layer = 2,
                             .n_head = 3,
                             .n_embd = 24,
                             .n_positions = 20,
                             .vocab_size = 131,
                             .padded_vocab_size = 131};

at::Tensor load(const SafetensorsFile& file, const std::string& name) {
  const TensorInfo* info = file.find(name);
  if (info == nullptr) throw std::runtime_error("no tensor " + name);
  const at::ScalarType type = info->dtype == Dtype::kF64   ? at::kDouble
                              : info->dtype == Dtype::kI32 ? at::kInt
                                                           : at::kFloat;
  const at::Tensor tensor = at::empty(info->shape, type);
  const auto bytes = file.bytes(*info);
  std::memcpy(tensor.data_ptr(), bytes.data(), bytes.size());
  return tensor;
}

std::string without_prefix(const std::string& name) {
  return name.substr(std::string("transformer.").size());
}

double relative_difference(const at::Tensor& a, const at::Tensor& b) {
  return ((a.to(at::kDouble) - b).norm() / b.to(at::kDouble).norm()).item<double>();
}

// Keeps the gradients that a step would use, and changes nothing.
class GradientRecorder final : public Optimizer {
 public:
  std::vector<std::string> state_names() const override { return {"gradient"}; }
  void step(FlatShard& shard, const StepScalars&) override { shard.state[0].copy_(shard.gradient); }
};

struct Model {
  Model(const Gpt2Shape& shape, const Path& weights, bool prefixed,
        std::unique_ptr<Optimizer> chosen, Executor::Options options = {})
      : chain(make_gpt2(shape)),
        optimizer(std::move(chosen)),
        communicator(make_single_process_communicator()),
        executor(chain, objective, optimizer.get(), one_process(*communicator), options) {
    const at::NoGradGuard no_grad;
    const SafetensorsFile file(weights);
    for (FlatUnit& unit : executor.units()) {
      unit.visit([&](const LocalPart& part) {
        const std::string& parameter = part.spec->name;
        part.parameters.view(part.spec->shape)
            .copy_(load(file, prefixed ? parameter : without_prefix(parameter)));
      });
    }
    executor.weights_changed();
  }

  // Calls visit(name without prefix, values of the master weight or of state 0).
  template <class Visit>
  void each(bool state, Visit visit) {
    for (FlatUnit& unit : executor.units()) {
      unit.visit([&](const LocalPart& part) {
        visit(without_prefix(part.spec->name),
              (state ? part.state[0] : part.parameters).view(part.spec->shape));
      });
    }
  }

  Chain chain;
  CausalLmObjective objective;
  std::unique_ptr<Optimizer> optimizer;
  std::unique_ptr<Communicator> communicator;
  Executor executor;
};

BatchContext context_of(const at::Tensor& ids, const at::Tensor& labels, Mode mode) {
  BatchContext context;
  context.ids = ids.to(at::kLong);
  context.labels = labels.to(at::kLong);
  context.mode = mode;
  return context;
}

void expect_reference(const Gpt2Shape& shape, const std::string& name, bool prefixed) {
  const SafetensorsFile reference(kTiny / (name + "_ref.safetensors"));
  Model model(shape, kTiny / (name + ".safetensors"), prefixed,
              std::make_unique<GradientRecorder>());
  const at::Tensor ids = load(reference, "input_ids"), targets = load(reference, "target_ids");
  const BatchContext context = context_of(ids, targets, Mode::kTrain);
  const at::Tensor hidden = model.executor.hidden(context);
  {
    const at::NoGradGuard no_grad;
    const at::Tensor logits = model.chain.head().logits(hidden.reshape({-1, shape.n_embd}));
    EXPECT_LT(relative_difference(logits, load(reference, "logits").reshape(logits.sizes())), 1e-5);
  }
  const double loss = load(reference, "loss").item<double>();
  const EvaluationSums sums = model.executor.evaluate(context_of(ids, targets, Mode::kEvaluate));
  EXPECT_NEAR(sums.loss / sums.weight, loss, 1e-5 * loss);
  EXPECT_EQ(sums.weight, static_cast<double>(targets.numel()));
  const StepOutcome outcome = model.executor.train_step({context}, 0.0);
  EXPECT_NEAR(outcome.loss, loss, 1e-5 * loss);
  int compared = 0;
  model.each(true, [&](const std::string& parameter, const at::Tensor& gradient) {
    const at::Tensor right = load(reference, "grad." + parameter);
    const double difference = (gradient.to(at::kDouble) - right).abs().max().item<double>();
    EXPECT_LE(difference, 1e-5 * right.abs().max().item<double>()) << parameter;
    ++compared;
  });
  EXPECT_EQ(compared, static_cast<int>(4 + 12 * shape.n_layer));
}

TEST(Gpt2ReferenceTest, LogitsLossAndGradientsOfTheRandomModel) {
  if (!std::filesystem::exists(kTiny)) GTEST_SKIP() << "no reference data at " << kTiny;
  expect_reference(kRandomShape, "tiny_random_gpt2", false);
}

TEST(Gpt2ReferenceTest, LogitsLossAndGradientsOfTheBiasedModel) {
  if (!std::filesystem::exists(kTiny)) GTEST_SKIP() << "no reference data at " << kTiny;
  expect_reference(kBiasedShape, "tiny_biased_gpt2", true);
}

// The key third of c_attn.bias has no true gradient: Adam steps there on rounding noise.
at::Tensor comparable(const std::string& name, const at::Tensor& values) {
  if (!name.ends_with("c_attn.bias")) return values;
  const std::int64_t width = values.numel() / 3;
  return at::cat({values.narrow(0, 0, width), values.narrow(0, 2 * width, width)});
}

TEST(Gpt2ReferenceTest, ThreeAdamWSteps) {
  if (!std::filesystem::exists(kTiny)) GTEST_SKIP() << "no reference data at " << kTiny;
  const SafetensorsFile reference(kTiny / "tiny_biased_gpt2_ref.safetensors");
  Model model(kBiasedShape, kTiny / "tiny_biased_gpt2.safetensors", true,
              std::make_unique<AdamW>(AdamWOptions{}), {.clip = {.max_norm = 1.0}});
  // shared/data/gpt2_tiny/expected.json
  const double losses[] = {5.329941561884659, 5.174714663603039, 5.02487360017299,
                           4.8808693626895865};
  const double norms[] = {1.8474377222528306, 1.810995930195172, 1.7796531705934349};
  const BatchContext context =
      context_of(load(reference, "input_ids"), load(reference, "target_ids"), Mode::kTrain);
  for (int step = 0; step < 3; ++step) {
    const StepOutcome outcome = model.executor.train_step({context}, 1e-3);
    EXPECT_NEAR(outcome.loss, losses[step], 1e-5 * losses[step]);
    EXPECT_NEAR(outcome.grad_norm, norms[step], 1e-5 * norms[step]);
  }
  model.each(false, [&](const std::string& name, const at::Tensor& weight) {
    EXPECT_LT(relative_difference(comparable(name, weight),
                                  comparable(name, load(reference, "adamw3." + name))),
              1e-5)
        << name;
  });
  const EvaluationSums sums = model.executor.evaluate(context);
  EXPECT_NEAR(sums.loss / sums.weight, losses[3], 1e-5 * losses[3]);
}

// Four micro-batches of unequal target counts, clipping, cosine schedule with warm-up.
TEST(Gpt2ReferenceTest, TwentyStepsAgreeWithPyTorch) {
  if (!std::filesystem::exists(kTiny)) GTEST_SKIP() << "no reference data at " << kTiny;
  const SafetensorsFile reference(Path(TESSERA_SOURCE_DIR) /
                                  "tests/reference/gpt2_steps.safetensors");
  Model model(kBiasedShape, kTiny / "tiny_biased_gpt2.safetensors", true,
              std::make_unique<AdamW>(AdamWOptions{}), {.clip = {.max_norm = 1.0}});
  OptimConfig config;
  config.lr = 1e-3;
  config.min_lr = 1e-4;
  config.warmup = 5;
  config.schedule = "cosine";
  const LrSchedule schedule(config, 20);
  const at::Tensor ids = load(reference, "ids"), targets = load(reference, "targets"),
                   lr = load(reference, "lr"), losses = load(reference, "loss.f32"),
                   norms = load(reference, "grad_norm.f32");
  for (std::int64_t step = 0; step < 20; ++step) {
    std::vector<BatchContext> micro_batches;
    for (std::int64_t m = 0; m < 4; ++m) {
      micro_batches.push_back(context_of(ids[step][m], targets[step][m], Mode::kTrain));
    }
    EXPECT_NEAR(schedule.at(step + 1), lr[step].item<double>(), 1e-12);
    const StepOutcome outcome = model.executor.train_step(micro_batches, schedule.at(step + 1));
    EXPECT_NEAR(outcome.loss / losses[step].item<double>(), 1.0, 1e-5) << "step " << step + 1;
    EXPECT_NEAR(outcome.grad_norm / norms[step].item<double>(), 1.0, 1e-5) << "step " << step + 1;
  }
  model.each(false, [&](const std::string& name, const at::Tensor& weight) {
    EXPECT_LT(relative_difference(comparable(name, weight),
                                  comparable(name, load(reference, "final.f32." + name))),
              1e-5)
        << name;
  });
}

}  // namespace
}  // namespace tessera
