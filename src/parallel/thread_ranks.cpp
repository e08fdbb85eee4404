#include "parallel/thread_ranks.h"

#include <exception>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "parallel/transports.h"

namespace tessera {
namespace {

struct RankGroups {
  std::unique_ptr<Communicator> world, shard, replica;
};

std::size_t rank_of(const Mesh& mesh, int replica, int shard) {
  const int rank = replica * mesh.shard + shard;
  return static_cast<std::size_t>(rank);
}

std::vector<RankGroups> make_groups(const Mesh& mesh) {
  std::vector<RankGroups> ranks(static_cast<std::size_t>(mesh.world_size()));
  auto world = make_thread_communicators(mesh.world_size());
  for (std::size_t rank = 0; rank < ranks.size(); ++rank)
    ranks[rank].world = std::move(world[rank]);
  for (int replica = 0; replica < mesh.replica; ++replica) {
    auto group = make_thread_communicators(mesh.shard);
    for (int shard = 0; shard < mesh.shard; ++shard) {
      ranks[rank_of(mesh, replica, shard)].shard =
          std::move(group[static_cast<std::size_t>(shard)]);
    }
  }
  for (int shard = 0; shard < mesh.shard; ++shard) {
    auto group = make_thread_communicators(mesh.replica);
    for (int replica = 0; replica < mesh.replica; ++replica) {
      ranks[rank_of(mesh, replica, shard)].replica =
          std::move(group[static_cast<std::size_t>(replica)]);
    }
  }
  return ranks;
}

}  // namespace

void run_thread_ranks(const Mesh& mesh, const std::function<void(const MeshGroups&)>& body) {
  std::vector<RankGroups> ranks = make_groups(mesh);
  std::vector<std::exception_ptr> failures(ranks.size());
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    threads.emplace_back([&, rank] {
      // Destroyed at the end, whatever happened: the others then hear that this rank has left.
      const RankGroups own = std::move(ranks[rank]);
      try {
        body({.mesh = mesh,
              .world = own.world.get(),
              .shard = own.shard.get(),
              .replica = own.replica.get()});
      } catch (...) {
        failures[rank] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
}

}  // namespace tessera
