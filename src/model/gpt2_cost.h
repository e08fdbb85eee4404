// What each unit of GPT-2 takes in memory and arithmetic, from shapes alone. Owns: the figures of
// gpt2.cpp's forwards and of the operations in them; the tests measure them.
#pragma once

#include <cstdint>
#include <vector>

#include "model/gpt2.h"
#include "unit/unit_cost.h"

namespace tessera {

struct Gpt2CostInputs {
  Gpt2Shape shape;
  std::int64_t rows = 1, block_size = 1;  // of one micro-batch
  std::int64_t compute_bytes = 4;         // of one element in the precision of computation: 4 or 2
  // torch's operations on a CPU make f32 copies of 16-bit tensors that they add to f32 ones or sum
  // in f32; those of accelerators convert as they go. Masks of dropout are made element by element
  // on a CPU, and by integer tensors elsewhere.
  bool on_cpu = true;
};

// In the order of make_gpt2()'s chain.
std::vector<UnitCost> gpt2_costs(const Gpt2CostInputs& inputs);

}  // namespace tessera
