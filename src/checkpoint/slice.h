// The parts of tensors that a process holds and saves, as plain memory. Owns: the description. Not:
// the memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "formats/safetensors.h"

namespace tessera {

// A range of a tensor's elements, counted row-major. At world size 1 every slice is a whole tensor.
struct Slice {
  static constexpr int kNeverRewritten = -1;  // region of frozen parameters

  // Unique in a checkpoint: "transformer.wte.weight", "exp_avg/transformer.wte.weight".
  std::string name;
  Dtype dtype = Dtype::kF32;
  std::vector<std::int64_t> shape;  // of the whole tensor
  std::int64_t begin = 0, end = 0;  // elements held here, [begin, end)
  const std::byte* data = nullptr;  // of element `begin`; contiguous
  int region = kNeverRewritten;     // index of the unit whose optimizer step rewrites these bytes
};

// What goes into one file.
struct SliceGroup {
  std::string stem;  // "model" -> model.safetensors
  std::vector<Slice> slices;
};

}  // namespace tessera
