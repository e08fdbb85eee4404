// How ranks are ordered. Owns: the named dimensions that strategies are made of, and which of them
// a strategy asks for. Not: the groups' communicators (mesh_groups.h).
#pragma once

#include <cstdint>
#include <string>

#include "config/config.h"

namespace tessera {

// (shard, replica): (1,1) one process, (1,n) data parallel, (n,1) fully sharded, (k,n/k) hybrid.
// Shard groups are contiguous ranks.
struct Mesh {
  int shard = 1, replica = 1;
  int world_size() const { return shard * replica; }
  bool operator==(const Mesh&) const = default;
};

inline std::string to_string(const Mesh& mesh) {
  return "shard " + std::to_string(mesh.shard) + ", replica " + std::to_string(mesh.replica);
}

// shard_degree 0: all ranks; with a hybrid strategy those of a node, which on one node are all.
// Error{kUsage} where the degree does not divide the ranks (it names those that do), or where
// several ranks run a strategy of one.
Mesh mesh_of(Strategy strategy, std::int64_t shard_degree, int world_size, int ranks_per_node);

// One sentence where `mesh`, as mesh_of() returned it, is that of another strategy than the one
// asked for; else empty.
std::string remark_on_mesh(Strategy strategy, const Mesh& mesh);

}  // namespace tessera
