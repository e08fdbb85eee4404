// The communicators of one rank, by dimension of the mesh. Owns: which ranks talk to each other,
// in which order, and whether a shard group gathers in two levels. Not: the transports.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "parallel/communicator.h"
#include "parallel/mesh.h"
#include "parallel/rank_group.h"

namespace tessera {

// What an executor talks through. A dimension of one rank is a single-process communicator; one
// that is the whole world is the world's communicator itself.
struct MeshGroups {
  Mesh mesh;
  Communicator* world = nullptr;
  Communicator* shard = nullptr;    // its rank is this rank's shard index
  Communicator* replica = nullptr;  // its rank is this rank's replica index
};

// Of a process that is alone.
inline MeshGroups one_process(Communicator& single) {
  return {.mesh = {}, .world = &single, .shard = &single, .replica = &single};
}

// How the ranks of a world lie: shard groups are contiguous ranks, and so are nodes.
struct MeshLayout {
  Mesh mesh;
  int ranks_per_node = 1;  // 0: nodes differ in size
  bool two_level = false;  // shard groups fill several whole nodes and gather node by node
};

// `node_of_rank`: by rank of the world, as launched; parallel.ranks_per_node replaces it.
// Error{kUsage} where the settings do not fit the number of ranks or how they lie on nodes.
MeshLayout mesh_layout(const ParallelConfig& config, std::span<const int> node_of_rank);

// With two levels, local rank l of the group's node j of N has the index l * N + j, so that what
// equal local ranks gather across nodes is contiguous. Else it is the place in the group.
int shard_index(const MeshLayout& layout, int world_rank);

// Owns the communicators of one rank.
class MeshCommunicators {
 public:
  // Called for groups of two ranks and more. All ranks make their groups in the same order, and
  // each rank of a group calls it with the same name and ranks.
  using Make = std::function<std::unique_ptr<Communicator>(const RankGroup& group)>;
  // What a rank talks through in place of the communicator that was made; a shard group's two
  // levels have become one by then. `group` has the order of its ranks.
  using Wrap = std::function<std::unique_ptr<Communicator>(
      std::unique_ptr<Communicator> communicator, const RankGroup& group)>;

  MeshCommunicators(const MeshLayout& layout, int world_rank, const Make& make,
                    const Wrap& wrap = {});

  // Valid as long as this object; it may be moved.
  MeshGroups groups() const;
  const MeshLayout& layout() const { return layout_; }

 private:
  std::unique_ptr<Communicator> make_group(const RankGroup& group, const Make& make,
                                           const Wrap& wrap) const;
  std::unique_ptr<Communicator> make_shard(int world_rank, const Make& make,
                                           const Wrap& wrap) const;

  MeshLayout layout_;
  std::unique_ptr<Communicator> world_, shard_, replica_;  // shard, replica: null where the world's
};

}  // namespace tessera
