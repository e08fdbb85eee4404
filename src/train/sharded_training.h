// A small GPT-2 trained by ranks that are threads, in any way that a step can be shared, and the
// measure by which two trainings are compared (parallelism: relative differences of at most 1e-5 in
// every tensor and in the loss of every step). For tests.
#pragma once

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "model/causal_lm.h"
#include "model/gpt2.h"
#include "optim/adamw.h"
#include "parallel/executor.h"
#include "parallel/thread_ranks.h"

namespace tessera::sharding {

inline constexpr int kSteps = 10;
inline constexpr std::int64_t kRows = 12, kColumns = 8;

inline Gpt2Shape small_shape() {
  Gpt2Shape shape;
  shape.n_layer = 3;
  shape.n_head = 2;
  shape.n_embd = 16;
  shape.n_positions = 8;
  shape.vocab_size = shape.padded_vocab_size = 53;  // that no rank count divides
  shape.embd_dropout = shape.attn_dropout = shape.resid_dropout = 0.1;
  return shape;
}

// Rows [begin, end) of a step's global batch; every third row has a target less.
inline BatchContext rows_of(std::int64_t step, std::int64_t begin, std::int64_t end) {
  BatchContext context;
  context.ids = at::empty({end - begin, kColumns}, at::kLong);
  context.labels = at::empty({end - begin, kColumns}, at::kLong);
  for (std::int64_t row = begin; row < end; ++row) {
    for (std::int64_t column = 0; column < kColumns; ++column) {
      const std::int64_t value = (step * 31 + row * 17 + column * column * 7) % 53;
      context.ids[row - begin][column] = value;
      const bool ignored = row % 3 == 0 && column == 2;
      context.labels[row - begin][column] =
          ignored ? BatchContext::kIgnoreLabel : (value * 5 + 3) % 53;
    }
  }
  context.random = {.seed = 7, .step = step, .first_row = begin};
  return context;
}

// This rank's micro-batches: parts in order of rank within each micro-batch, as equal as can be.
inline std::vector<BatchContext> own_rows(std::int64_t step, int micro_batches, int rank,
                                          int ranks) {
  std::vector<BatchContext> result;
  for (int part = 0; part < micro_batches; ++part) {
    const std::int64_t cuts = static_cast<std::int64_t>(micro_batches) * ranks;
    const std::int64_t index = static_cast<std::int64_t>(part) * ranks + rank;
    result.push_back(rows_of(step, kRows * index / cuts, kRows * (index + 1) / cuts));
  }
  return result;
}

struct Trained {
  std::vector<double> losses, norms;
  std::map<std::string, at::Tensor> weights;  // whole
};

// A case: how ranks share the work.
struct Way {
  Mesh mesh;
  int micro_batches = 1;
  StepPolicy step;
  at::ScalarType compute = at::kFloat, reduce = at::kFloat;
  LossScale loss_scale;
};

class Rank {
 public:
  Rank(const MeshGroups& groups, const Way& way)
      : chain_(make_gpt2(small_shape())),
        executor_(chain_, objective_, &optimizer_, groups,
                  {.compute_dtype = way.compute,
                   .reduce_dtype = way.reduce,
                   .clip = {.max_norm = 1.0},
                   .loss_scale = way.loss_scale,
                   .step = way.step}) {
    const at::NoGradGuard no_grad;
    for (FlatUnit& unit : executor_.units()) unit.initialise(1);
  }

  StepOutcome step(std::int64_t number, const Way& way, int rank) {
    return executor_.train_step(own_rows(number, way.micro_batches, rank, way.mesh.world_size()),
                                0.01);
  }
  Executor& executor() { return executor_; }

 private:
  Chain chain_;
  CausalLmObjective objective_;
  AdamW optimizer_{{.beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1}};
  Executor executor_;
};

// Adds a rank's parts to the whole tensors; replicas write the same.
inline void add_parts(Executor& executor, std::map<std::string, at::Tensor>& whole,
                      std::mutex& mutex) {
  const std::scoped_lock lock(mutex);
  for (const FlatUnit& unit : executor.units()) {
    unit.visit([&](const LocalPart& part) {
      at::Tensor& tensor = whole[part.spec->name];
      if (!tensor.defined()) tensor = at::empty({part.spec->elements()}, at::kFloat).fill_(NAN);
      tensor.narrow(0, part.begin, part.end - part.begin).copy_(part.parameters);
    });
  }
}

inline Trained train(const Way& way) {
  Trained result;
  std::mutex mutex;
  run_thread_ranks(way.mesh, [&](const MeshGroups& groups) {
    at::set_num_threads(1);
    Rank rank(groups, way);
    for (int step = 1; step <= kSteps; ++step) {
      const StepOutcome outcome = rank.step(step, way, groups.world->rank());
      EXPECT_TRUE(outcome.applied);
      if (groups.world->rank() != 0) continue;
      result.losses.push_back(outcome.loss);
      result.norms.push_back(outcome.grad_norm);
    }
    add_parts(rank.executor(), result.weights, mutex);
  });
  return result;
}

inline const Trained& one_process() {
  static const Trained trained = train({});
  return trained;
}

// The key third of c_attn.bias has a gradient of zero: Adam steps on its rounding noise.
inline at::Tensor compared(const std::string& name, const at::Tensor& tensor) {
  if (!name.ends_with("attn.c_attn.bias")) return tensor;
  const std::int64_t width = tensor.numel() / 3;
  at::Tensor copy = tensor.clone();
  copy.narrow(0, width, width).zero_();
  return copy;
}

inline void expect_equal(const Trained& a, const Trained& b, const std::string& what) {
  ASSERT_EQ(a.losses.size(), b.losses.size());
  for (std::size_t i = 0; i < a.losses.size(); ++i) {
    EXPECT_NEAR(a.losses[i], b.losses[i], 1e-5 * b.losses[i]) << what << ", step " << i + 1;
    EXPECT_NEAR(a.norms[i], b.norms[i], 1e-5 * b.norms[i]) << what << ", step " << i + 1;
  }
  ASSERT_EQ(a.weights.size(), b.weights.size());
  for (const auto& [name, tensor] : b.weights) {
    const at::Tensor mine = compared(name, a.weights.at(name)), other = compared(name, tensor);
    const double difference = (mine - other).norm().item<double>() / other.norm().item<double>();
    EXPECT_LE(difference, 1e-5) << what << ", " << name;
  }
}

// For what is computed in less than f32: losses, and the first gradient's norm. What comes after it
// is no measure then: in its first steps Adam moves each weight by its gradient's sign, whatever
// its size, so that rounding sends weights different ways.
inline void expect_close(const Trained& a, const Trained& b, double share,
                         const std::string& what) {
  for (std::size_t i = 0; i < b.losses.size(); ++i) {
    EXPECT_NEAR(a.losses[i], b.losses[i], share * b.losses[i]) << what << ", step " << i + 1;
  }
  EXPECT_NEAR(a.norms[0], b.norms[0], share * b.norms[0]) << what;
}

inline void expect_same_bits(const Trained& a, const Trained& b, const std::string& what) {
  EXPECT_EQ(a.losses, b.losses) << what;
  EXPECT_EQ(a.norms, b.norms) << what;
  for (const auto& [name, tensor] : b.weights) {
    EXPECT_TRUE(a.weights.at(name).equal(tensor)) << what << ", " << name;
  }
}

}  // namespace tessera::sharding
