#include "model/gpt2_cost.h"

#include <algorithm>

#include "ops/cross_entropy.h"

namespace tessera {
namespace {

// Sizes that the figures are made of, in bytes.
struct Sizes {
  explicit Sizes(const Gpt2CostInputs& inputs)
      : tokens(inputs.rows * inputs.block_size),
        width(inputs.shape.n_embd),
        element(inputs.compute_bytes),
        half(inputs.compute_bytes < 4),
        copies(half && inputs.on_cpu),
        mask_bytes(inputs.on_cpu ? 0 : 26),
        hidden(tokens * width * element),
        scores(tokens * inputs.block_size * inputs.shape.n_head * 4) {}

  // Of a weight's gradient beside the flat buffer: in 16 bits, where a product cannot add to an f32
  // gradient by itself, the product; with a copy of it in f32.
  std::int64_t weight_gradient(std::int64_t elements) const {
    return half ? elements * (element + (copies ? 4 : 0)) : 0;
  }

  std::int64_t tokens, width, element;
  bool half, copies;
  std::int64_t mask_bytes;  // while dropout's mask is made, for each element (measured)
  std::int64_t hidden;      // (B, T, C)
  std::int64_t scores;      // (B, H, T, T) f32
};

double real(std::int64_t value) { return static_cast<double>(value); }

UnitCost embedding_cost(const Gpt2CostInputs& inputs) {
  const Sizes size(inputs);
  const Gpt2Shape& shape = inputs.shape;
  const bool drops = shape.embd_dropout > 0;
  const std::int64_t mask = drops ? size.tokens * size.width * size.mask_bytes : 0;
  UnitCost cost{.output_bytes = size.hidden,
                .lean_peak = std::max(2 * size.hidden, size.hidden + mask)};
  cost.all.forward_peak = cost.lean_peak;
  // The gradient of the positions in use, and of all of them; rows for the embedding's gradient in
  // f32.
  const std::int64_t used = inputs.block_size * size.width * size.element,
                     all = shape.n_positions * size.width * size.element;
  const std::int64_t rows = size.half ? size.tokens * size.width * 4 : 0;
  cost.all.backward_peak = std::max(used + rows + (drops ? size.hidden : 0),
                                    all + (size.copies ? all / size.element * 4 : used));
  cost.all.backward_peak = std::max(cost.all.backward_peak, mask);
  cost.products = cost.all;
  return cost;
}

// Kept: query, key and value, what attention mixed, the sum of attention and input, the MLP's
// hidden layer (4 C) before GELU; both norms' outputs, unless they are made again; and statistics.
TrainingCost block_training(const Gpt2CostInputs& inputs, Keep keep) {
  const Sizes size(inputs);
  const Gpt2Shape& shape = inputs.shape;
  const std::int64_t hidden = size.hidden;
  const bool drops_attention = shape.attn_dropout > 0;
  const std::int64_t norms = keep == Keep::kAll ? 2 * hidden : 0;
  TrainingCost cost;
  cost.kept_bytes = 9 * hidden + norms + 4 * size.tokens * size.element;
  cost.kept_bytes += drops_attention ? inputs.block_size * inputs.block_size  // the mask
                                     : size.tokens * shape.n_head * 4;  // sums of exponentials
  // After attention everything is kept but GELU's result and the MLP's.
  cost.forward_peak = cost.kept_bytes + 5 * hidden;
  // Through GELU: the gradient of its result and of its argument. Then, where bias gradients are
  // summed in f32 from a copy, that of the hidden layer's; without the norm's gradient, where the
  // norm belongs to the same operation.
  std::int64_t backward = 8 * hidden + (shape.resid_dropout > 0 ? hidden : 0);
  const std::int64_t matrix = 4 * size.width * size.width;
  if (shape.resid_dropout > 0) {
    const std::int64_t mask = size.tokens * size.width * size.mask_bytes;
    cost.forward_peak = std::max(cost.forward_peak, cost.kept_bytes + hidden + mask);
    backward = std::max(backward, mask);
  }
  if (size.copies) backward = std::max(backward, (keep == Keep::kAll ? 9 : 8) * hidden);
  backward = std::max(backward, 4 * hidden + size.weight_gradient(matrix));
  if (drops_attention) {
    // Scores are made as a matrix: with dropout's result beside them, and as the values' factor.
    const std::int64_t factor = size.half ? size.scores / 2 : 0;
    cost.forward_peak =
        std::max(cost.forward_peak, 5 * hidden + norms / 2 + 2 * size.scores + factor);
    const std::int64_t mask = size.scores / 4 * size.mask_bytes;
    cost.forward_peak = std::max(cost.forward_peak, 4 * hidden + norms / 2 + size.scores + mask);
    backward = std::max(backward, 2 * size.scores + mask - 4 * hidden);
    // By then seven tensors of the MLP's and attention's are gone.
    backward = std::max(
        backward, size.half ? 3 * size.scores + factor - 4 * hidden : 3 * size.scores - hidden);
  }
  cost.backward_peak = backward;
  return cost;
}

UnitCost block_cost(const Gpt2CostInputs& inputs) {
  const Sizes size(inputs);
  UnitCost cost{.output_bytes = size.hidden, .lean_peak = 10 * size.hidden};
  if (inputs.shape.attn_dropout > 0) {
    cost.lean_peak = std::max(
        {cost.lean_peak, 5 * size.hidden + 2 * size.scores + (size.half ? size.scores / 2 : 0),
         4 * size.hidden + size.scores + size.scores / 4 * size.mask_bytes});
  }
  if (inputs.shape.resid_dropout > 0) {
    cost.lean_peak =
        std::max(cost.lean_peak, 2 * size.hidden + size.tokens * size.width * size.mask_bytes);
  }
  const double width = real(size.width);
  cost.forward_flops =
      real(size.tokens) * (24 * width * width + 2 * width * real(inputs.block_size));
  cost.all = block_training(inputs, Keep::kAll);
  cost.products = block_training(inputs, Keep::kProducts);
  cost.all.backward_flops = cost.products.backward_flops = 2 * cost.forward_flops;
  return cost;
}

// The norm, and the objective of causal_lm.h.
UnitCost head_cost(const Gpt2CostInputs& inputs) {
  const Sizes size(inputs);
  const std::int64_t vocab = inputs.shape.vocab_size;
  const std::int64_t rows = cross_entropy_chunk(size.tokens, {.vocab_size = vocab});
  UnitCost cost;
  // In f32, and as the products take them.
  cost.logits_bytes = rows * vocab * (size.half ? 4 + size.element : 4);
  cost.lean_peak = size.hidden + cost.logits_bytes;
  cost.all.kept_bytes = size.hidden + 2 * size.tokens * size.element;
  cost.all.forward_peak = size.hidden + cost.all.kept_bytes + cost.logits_bytes +
                          size.weight_gradient(vocab * size.width);
  cost.all.backward_peak = size.hidden;
  cost.forward_flops = 6 * real(size.tokens) * real(vocab) * real(size.width);
  cost.products = cost.all;
  return cost;
}

}  // namespace

std::vector<UnitCost> gpt2_costs(const Gpt2CostInputs& inputs) {
  std::vector<UnitCost> costs = {embedding_cost(inputs)};
  costs.resize(static_cast<std::size_t>(inputs.shape.n_layer) + 1, block_cost(inputs));
  costs.push_back(head_cost(inputs));
  return costs;
}

}  // namespace tessera
