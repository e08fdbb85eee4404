#include "parallel/mesh.h"

#include "base/error.h"

namespace tessera {
namespace {

bool is_hybrid(Strategy strategy) {
  return strategy == Strategy::kHybridShard || strategy == Strategy::kHybridShardZero2;
}

std::string divisors_of(int number) {
  std::string list;
  for (int divisor = 1; divisor <= number; ++divisor) {
    if (number % divisor != 0) continue;
    if (!list.empty()) list += divisor == number ? " or " : ", ";
    list += std::to_string(divisor);
  }
  return list;
}

// Ranks of a shard group before it is known whether that divides the world.
std::int64_t wanted_degree(Strategy strategy, std::int64_t shard_degree, int world_size,
                           int ranks_per_node) {
  if (shard_degree > 0) return shard_degree;
  if (strategy == Strategy::kAuto) return 1;
  if (!is_hybrid(strategy) || ranks_per_node <= 0 || ranks_per_node >= world_size) {
    return world_size;
  }
  return ranks_per_node;
}

}  // namespace

Mesh mesh_of(Strategy strategy, std::int64_t shard_degree, int world_size, int ranks_per_node) {
  const std::string ranks = std::to_string(world_size) + (world_size == 1 ? " rank" : " ranks");
  if (strategy == Strategy::kNone && world_size > 1) {
    throw Error(ErrorKind::kUsage, "parallel.strategy is none, but there are " + ranks,
                "parallel.strategy", "Start one process, or set parallel.strategy=ddp.");
  }
  if (strategy == Strategy::kNone || strategy == Strategy::kDdp) return {1, world_size};
  const std::int64_t degree = wanted_degree(strategy, shard_degree, world_size, ranks_per_node);
  if (degree > world_size || world_size % degree != 0) {
    const std::string what = shard_degree > 0 ? "shard groups of " + std::to_string(degree)
                                              : "parallel.shard_degree is not set, and nodes of " +
                                                    std::to_string(degree) + " ranks";
    throw Error(ErrorKind::kUsage, what + " do not divide " + ranks, "parallel.shard_degree",
                "Set it to " + divisors_of(world_size) + ", or start another number of ranks.");
  }
  const int shard = static_cast<int>(degree);
  return {shard, world_size / shard};
}

std::string remark_on_mesh(Strategy strategy, const Mesh& mesh) {
  if (mesh.world_size() == 1) return {};
  const std::string name = "parallel.strategy=" + std::string(to_string(strategy));
  const bool full = strategy == Strategy::kFullShard || strategy == Strategy::kShardGradOp;
  if ((full || is_hybrid(strategy)) && mesh.shard == 1) {
    return name + " with shard groups of one rank keeps the whole model on each, as ddp does.";
  }
  if (is_hybrid(strategy) && mesh.replica == 1) {
    return name + " has one shard group of all " + std::to_string(mesh.shard) + " ranks, as " +
           (strategy == Strategy::kHybridShard ? "full_shard" : "shard_grad_op") +
           " does; parallel.shard_degree makes smaller ones.";
  }
  if ((full || strategy == Strategy::kAuto) && mesh.shard > 1 && mesh.replica > 1) {
    return name + " with shard groups of " + std::to_string(mesh.shard) + " of " +
           std::to_string(mesh.world_size()) + " ranks is " +
           (strategy == Strategy::kShardGradOp ? "hybrid_shard_zero2." : "hybrid_shard.");
  }
  return {};
}

}  // namespace tessera
