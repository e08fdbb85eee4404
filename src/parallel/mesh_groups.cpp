#include "parallel/mesh_groups.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "base/error.h"
#include "parallel/two_level_communicator.h"

namespace tessera {
namespace {

// Ranks of a node where all nodes have as many and lie one after the other; else 0.
int ranks_per_node_of(std::span<const int> node_of_rank) {
  const auto is_first_node = [&](int node) { return node == node_of_rank[0]; };
  const auto size = static_cast<std::size_t>(std::ranges::count_if(node_of_rank, is_first_node));
  if (node_of_rank.size() % size != 0) return 0;
  std::vector<int> seen;
  for (std::size_t begin = 0; begin < node_of_rank.size(); begin += size) {
    const int node = node_of_rank[begin];
    const auto same = [node](int other) { return other == node; };
    if (std::ranges::find(seen, node) != seen.end() ||
        !std::ranges::all_of(node_of_rank.subspan(begin, size), same)) {
      return 0;
    }
    seen.push_back(node);
  }
  return static_cast<int>(size);
}

int node_size(const ParallelConfig& config, std::span<const int> node_of_rank) {
  const auto world_size = static_cast<std::int64_t>(node_of_rank.size());
  if (config.ranks_per_node == 0) return ranks_per_node_of(node_of_rank);
  if (config.ranks_per_node >= world_size) return static_cast<int>(world_size);
  if (world_size % config.ranks_per_node != 0) {
    throw Error(ErrorKind::kUsage,
                "nodes of " + std::to_string(config.ranks_per_node) + " ranks do not divide " +
                    std::to_string(world_size) + " ranks",
                "parallel.ranks_per_node", "Set it to a divisor, or leave it out.");
  }
  return static_cast<int>(config.ranks_per_node);
}

void require_two_levels(const MeshLayout& layout) {
  const bool inside = layout.ranks_per_node > 0 && layout.ranks_per_node % layout.mesh.shard == 0;
  if (layout.two_level || inside) return;  // inside a node one level is all there is
  const std::string nodes = layout.ranks_per_node > 0
                                ? "nodes of " + std::to_string(layout.ranks_per_node)
                                : "nodes of different sizes";
  throw Error(ErrorKind::kUsage,
              "shard groups of " + std::to_string(layout.mesh.shard) + " ranks do not fill whole " +
                  nodes + " ranks",
              "parallel.hierarchical_gather",
              "Set parallel.shard_degree to a multiple of a node's ranks, or leave "
              "hierarchical_gather at auto.");
}

}  // namespace

MeshLayout mesh_layout(const ParallelConfig& config, std::span<const int> node_of_rank) {
  MeshLayout layout{.ranks_per_node = node_size(config, node_of_rank)};
  const bool hybrid =
      config.strategy == Strategy::kHybridShard || config.strategy == Strategy::kHybridShardZero2;
  if (hybrid && config.shard_degree == 0 && layout.ranks_per_node == 0) {
    throw Error(ErrorKind::kUsage,
                "parallel.strategy=" + std::string(to_string(config.strategy)) +
                    " shards over the ranks of a node, and nodes have different numbers of ranks",
                "parallel.shard_degree", "Set it, or start as many ranks on every node.");
  }
  layout.mesh = mesh_of(config.strategy, config.shard_degree, static_cast<int>(node_of_rank.size()),
                        layout.ranks_per_node);
  const int node = layout.ranks_per_node, shard = layout.mesh.shard;
  // With one rank a node, or one node a group, there is one level only.
  layout.two_level = config.hierarchical_gather != AutoBool::kFalse && node > 1 && shard > node &&
                     shard % node == 0;
  if (config.hierarchical_gather == AutoBool::kTrue && node != 1) require_two_levels(layout);
  return layout;
}

int shard_index(const MeshLayout& layout, int world_rank) {
  const int place = world_rank % layout.mesh.shard;
  if (!layout.two_level) return place;
  const int nodes = layout.mesh.shard / layout.ranks_per_node;
  const int node = place / layout.ranks_per_node, local = place % layout.ranks_per_node;
  return local * nodes + node;
}

MeshCommunicators::MeshCommunicators(const MeshLayout& layout, int world_rank, const Make& make,
                                     const Wrap& wrap)
    : layout_(layout) {
  const Mesh& mesh = layout.mesh;
  RankGroup world{.name = "world", .rank = world_rank};
  for (int rank = 0; rank < mesh.world_size(); ++rank) world.ranks.push_back(rank);
  world_ = make_group(world, make, wrap);
  if (mesh.replica > 1 || layout.two_level) shard_ = make_shard(world_rank, make, wrap);
  if (mesh.shard > 1) {
    const int place = world_rank % mesh.shard;
    RankGroup replica{.name = "replica-" + std::to_string(place), .rank = world_rank / mesh.shard};
    for (int copy = 0; copy < mesh.replica; ++copy) {
      replica.ranks.push_back(copy * mesh.shard + place);
    }
    replica_ = make_group(replica, make, wrap);
  }
}

MeshGroups MeshCommunicators::groups() const {
  return {.mesh = layout_.mesh,
          .world = world_.get(),
          .shard = shard_ ? shard_.get() : world_.get(),
          .replica = replica_ ? replica_.get() : world_.get()};
}

std::unique_ptr<Communicator> MeshCommunicators::make_group(const RankGroup& group,
                                                            const Make& make,
                                                            const Wrap& wrap) const {
  if (group.size() == 1) return make_single_process_communicator();
  std::unique_ptr<Communicator> communicator = make(group);
  return wrap ? wrap(std::move(communicator), group) : std::move(communicator);
}

std::unique_ptr<Communicator> MeshCommunicators::make_shard(int world_rank, const Make& make,
                                                            const Wrap& wrap) const {
  const int size = layout_.mesh.shard, node_size = layout_.ranks_per_node;
  const int first = world_rank / size * size;
  RankGroup shard{.name = "shard-" + std::to_string(world_rank / size),
                  .rank = shard_index(layout_, world_rank)};
  shard.ranks.resize(static_cast<std::size_t>(size));
  for (int rank = first; rank < first + size; ++rank) {
    shard.ranks[static_cast<std::size_t>(shard_index(layout_, rank))] = rank;
  }
  if (!layout_.two_level) return make_group(shard, make, wrap);

  const int node = (world_rank - first) / node_size, local = (world_rank - first) % node_size;
  RankGroup inside{.name = shard.name + "-node-" + std::to_string(node), .rank = local};
  for (int other = 0; other < node_size; ++other) {
    inside.ranks.push_back(first + node * node_size + other);
  }
  RankGroup across{.name = shard.name + "-local-" + std::to_string(local), .rank = node};
  for (int other = 0; other < size / node_size; ++other) {
    across.ranks.push_back(first + other * node_size + local);
  }
  std::unique_ptr<Communicator> inside_made = make(inside), across_made = make(across);
  std::unique_ptr<Communicator> both =
      make_two_level_communicator(std::move(inside_made), std::move(across_made));
  return wrap ? wrap(std::move(both), shard) : std::move(both);
}

}  // namespace tessera
