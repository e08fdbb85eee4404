// The state of a model between memory and checkpoints: which bytes are which named tensor, and the
// way back. Owns: names of tensors in checkpoints. Not: files (checkpoint/).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/reader.h"
#include "checkpoint/slice.h"
#include "parallel/flat_unit.h"

namespace tessera {

// "model" with the master weights under their own names, and "optimizer" with each of the
// optimizer's states as "exp_avg/NAME": the parts that this rank holds. On a CPU slices point into
// the flat units' memory, and a slice's region is its flat unit's index. From another device
// everything is copied to the host, which `copies` holds, and no step rewrites them.
struct CheckpointSlices {
  std::vector<SliceGroup> groups;
  std::shared_ptr<const void> copies;
};
CheckpointSlices checkpoint_slices(std::vector<FlatUnit>& units, const Optimizer& optimizer);

// Reads elements of a named tensor, from `first` on, as many as `out` has: f32, on the host.
using ReadElements =
    std::function<void(const std::string& name, std::int64_t first, const at::Tensor& out)>;

// Fills the parts that this rank holds; with an optimizer, its state too.
void fill_own_parts(std::vector<FlatUnit>& units, const Optimizer* optimizer,
                    const ReadElements& read);
// The same where rank 0 alone reads, piece by piece, and every rank keeps its parts of each piece:
// no rank ever holds more than its shard and one piece. All ranks call it.
void fill_from_first(std::vector<FlatUnit>& units, const Optimizer* optimizer, Communicator& world,
                     const at::Device& device, const ReadElements& read);

// Reads from a checkpoint. Checks first that it has every tensor in its shape: Error{kCorrupt}.
ReadElements read_from(const CheckpointReader& checkpoint, std::vector<FlatUnit>& units,
                       const Optimizer* optimizer);
// The checkpoint into this rank's parts.
void restore(const CheckpointReader& checkpoint, std::vector<FlatUnit>& units,
             const Optimizer* optimizer);

}  // namespace tessera
