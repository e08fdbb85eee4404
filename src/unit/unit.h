// The model layer's contract with everything that trains it. A model is a chain of units; a unit is
// plain single-device code that knows nothing of ranks, sharding, precision or checkpointing.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "unit/batch_context.h"

namespace tessera {

struct Initialisation {
  enum class Kind { kZeros, kOnes, kNormal } kind = Kind::kZeros;
  double std = 0.0;  // of kNormal; the mean is 0
};

// How a linear layer would be cut by tensor parallelism (docs/architecture.md). Data only, so far.
enum class LinearRole { kReplicated, kColumn, kRow };

// One parameter as its unit declares it. `slot` is the unit's member that forward() reads; whoever
// owns the memory (parallel/) sets it to a view of a flat buffer, in the precision of computation,
// before each forward.
struct ParameterSpec {
  std::string name;  // the Hugging Face name, unique in the chain
  std::vector<std::int64_t> shape;
  Initialisation init = {};
  bool decay = false;     // weight decay applies (matrices)
  bool trainable = true;  // false: no gradient, no optimizer state, never rewritten
  LinearRole role = LinearRole::kReplicated;
  at::Tensor* slot = nullptr;

  std::int64_t elements() const;
};

class Unit {
 public:
  virtual ~Unit() = default;
  virtual const std::string& name() const = 0;
  // In a fixed order. The slots stay valid as long as the unit.
  virtual std::vector<ParameterSpec> parameters() = 0;
  // hidden: (B, T, C), undefined for the first unit, which starts from context.ids. Returns (B, T,
  // C). Builds an autograd graph when gradients are enabled; keeps no state between calls.
  virtual at::Tensor forward(const at::Tensor& hidden, const BatchContext& context) = 0;
};

// The last unit of a chain: forward() is the final norm; the projection to the vocabulary is used
// apart, for chosen rows or in chunks, so that logits of a whole batch need not exist.
class Head : public Unit {
 public:
  virtual const at::Tensor& projection() const = 0;  // (V, C); a tied one is the embedding's
  virtual std::int64_t vocab_size()
      const = 0;  // rows of the projection that are real tokens; the rest is padding
  // hidden: (N, C) after forward(); returns (N, vocab_size), f32.
  at::Tensor logits(const at::Tensor& hidden) const;
};

// A parameter used by a second unit. The owner's FlatUnit holds memory and gradient.
struct Tie {
  std::string owner;                // parameter name
  at::Tensor* user_slot = nullptr;  // set to the owner's view
  std::size_t user_unit = 0;        // index in the chain
};

struct Chain {
  std::vector<std::unique_ptr<Unit>> units;  // the last one is a Head
  std::vector<Tie> ties;

  Head& head() const { return static_cast<Head&>(*units.back()); }
  std::int64_t parameter_count() const;  // tied ones once
};

}  // namespace tessera
