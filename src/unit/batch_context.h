// What a unit may read beside the hidden states: one micro-batch's ids, labels and keys. Plain
// values; units change nothing here but the slots of the key-value cache.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace tessera {

enum class Mode { kTrain, kEvaluate, kGenerate };

// What a unit keeps for its backward, where it can choose.
enum class Keep {
  kAll,       // whatever makes backward fastest
  kProducts,  // results of matrix products and attention; the cheap rest is computed again
};

// Identifies one random draw of a run: masks depend on this, the unit, the site in it, the row and
// the element only, so they are equal at any rank count, accumulation, thread count and on
// recomputation.
struct RandomKey {
  std::uint64_t seed = 0;
  std::int64_t step = 0;
  std::int64_t first_row = 0;  // number of row 0 of this micro-batch within the step's global batch
};

// Keys and values of past positions, one slot a layer. Owned by the caller (inference/).
struct KvCache {
  struct Slot {
    at::Tensor key, value;  // (B, H, capacity, D)
  };
  std::vector<Slot> slots;
  std::int64_t length =
      0;  // positions filled; the caller advances it after a forward through all units
};

struct BatchContext {
  at::Tensor ids;  // (B, T) int64
  at::Tensor
      labels;  // (B, T) int64, kIgnoreLabel where there is no target; undefined when generating
  at::Tensor loss_weights;    // (B, T) f32 or undefined: every target weighs 1
  at::Tensor positions;       // (B, T) int64 or undefined: 0 … T-1 in every row
  at::Tensor attention_mask;  // (B, 1, T, S) bool, true = may attend; undefined: causal
  RandomKey random;
  Mode mode = Mode::kTrain;
  Keep keep = Keep::kAll;
  KvCache* cache = nullptr;

  static constexpr std::int64_t kIgnoreLabel = -100;
};

}  // namespace tessera
