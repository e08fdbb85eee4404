#include "parallel/mesh_groups.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <thread>

#include "base/error.h"
#include "parallel/traffic.h"
#include "parallel/transports.h"

namespace tessera {
namespace {

// Makes the groups of ranks that are threads.
class ThreadGroups {
 public:
  std::unique_ptr<Communicator> make(const RankGroup& group) {
    const std::scoped_lock lock(mutex_);
    auto& made = groups_[group.name];
    if (made.ranks.empty()) made = {group.ranks, make_thread_communicators(group.size())};
    EXPECT_EQ(made.ranks, group.ranks) << group.name;
    return std::move(made.communicators[static_cast<std::size_t>(group.rank)]);
  }
  std::size_t size() const { return groups_.size(); }

 private:
  struct Made {
    std::vector<int> ranks;
    std::vector<std::unique_ptr<Communicator>> communicators;
  };
  std::mutex mutex_;
  std::map<std::string, Made> groups_;
};

void run_ranks(const MeshLayout& layout, ThreadGroups& made,
               const std::function<void(int rank, const MeshGroups&)>& body) {
  std::vector<std::exception_ptr> failures(static_cast<std::size_t>(layout.mesh.world_size()));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < layout.mesh.world_size(); ++rank) {
    threads.emplace_back([&, rank] {
      try {
        const MeshCommunicators communicators(
            layout, rank, [&made](const RankGroup& group) { return made.make(group); });
        body(rank, communicators.groups());
      } catch (...) {
        failures[static_cast<std::size_t>(rank)] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
}

// The world's ranks in a group, by the group's own order.
std::vector<int> ranks_of(Communicator& group, int rank) {
  const at::Tensor all = at::zeros({group.world_size()}, at::kLong);
  group.all_gather(all, at::full({1}, rank, at::kLong))->wait();
  const auto* values = all.const_data_ptr<std::int64_t>();
  return {values, values + all.numel()};
}

TEST(MeshGroups, ShardGroupsAreContiguousAndReplicasStrided) {
  ThreadGroups made;
  run_ranks({.mesh = {2, 3}, .ranks_per_node = 2}, made, [](int rank, const MeshGroups& groups) {
    EXPECT_EQ(groups.mesh, (Mesh{2, 3}));
    EXPECT_EQ(ranks_of(*groups.world, rank), (std::vector<int>{0, 1, 2, 3, 4, 5}));
    const int first = rank / 2 * 2, place = rank % 2;
    EXPECT_EQ(ranks_of(*groups.shard, rank), (std::vector<int>{first, first + 1}));
    EXPECT_EQ(ranks_of(*groups.replica, rank), (std::vector<int>{place, place + 2, place + 4}));
    EXPECT_EQ(groups.shard->rank(), place);
    EXPECT_EQ(groups.replica->rank(), rank / 2);
  });
  EXPECT_EQ(made.size(), 1u + 3u + 2u);
}

TEST(MeshGroups, ADimensionOfTheWholeWorldIsTheWorlds) {
  ThreadGroups sharded, replicated;
  run_ranks({.mesh = {3, 1}, .ranks_per_node = 3}, sharded, [](int, const MeshGroups& groups) {
    EXPECT_EQ(groups.shard, groups.world);
    EXPECT_EQ(groups.replica->world_size(), 1);
  });
  run_ranks({.mesh = {1, 3}, .ranks_per_node = 3}, replicated, [](int, const MeshGroups& groups) {
    EXPECT_EQ(groups.replica, groups.world);
    EXPECT_EQ(groups.shard->world_size(), 1);
  });
  EXPECT_EQ(sharded.size() + replicated.size(), 2u);
  const MeshCommunicators alone(MeshLayout{}, 0, {});
  EXPECT_EQ(alone.groups().world->world_size(), 1);
  EXPECT_EQ(alone.groups().shard, alone.groups().world);
  EXPECT_EQ(alone.groups().replica, alone.groups().world);
}

TEST(MeshGroups, GroupsOverSeveralNodesAreOrderedByLocalRank) {
  ThreadGroups made;
  // Two shard groups of two nodes with three ranks each.
  const MeshLayout layout{.mesh = {6, 2}, .ranks_per_node = 3, .two_level = true};
  run_ranks(layout, made, [&](int rank, const MeshGroups& groups) {
    const int first = rank / 6 * 6;
    std::vector<int> expected;
    for (const int place : {0, 3, 1, 4, 2, 5}) expected.push_back(first + place);
    EXPECT_EQ(ranks_of(*groups.shard, rank), expected);
    EXPECT_EQ(groups.shard->rank(), shard_index(layout, rank));
    EXPECT_EQ(expected[static_cast<std::size_t>(groups.shard->rank())], rank);
    // Copies of a shard are of the same index.
    EXPECT_EQ(ranks_of(*groups.replica, rank), (std::vector<int>{rank % 6, rank % 6 + 6}));
    EXPECT_EQ(shard_index(layout, rank % 6), shard_index(layout, rank % 6 + 6));
    const at::Tensor sum = at::full({5}, rank, at::kLong), part = at::zeros({1}, at::kLong);
    groups.shard->all_reduce(sum, ReduceOperation::kSum)->wait();
    EXPECT_TRUE(sum.eq(6 * first + 15).all().item<bool>());
    groups.shard
        ->reduce_scatter(part, at::arange(6, at::kLong).mul(rank + 1), ReduceOperation::kSum)
        ->wait();
    EXPECT_EQ(part.item<std::int64_t>(), groups.shard->rank() * (6 * first + 21));
  });
}

TEST(MeshGroups, AGroupIsWrappedWholeAndCountedByHop) {
  const MeshLayout layout{.mesh = {4, 1}, .ranks_per_node = 2, .two_level = true};
  ThreadGroups made;
  std::vector<Traffic> traffic(4);
  std::vector<std::vector<std::string>> wrapped(4);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 4; ++rank) {
    threads.emplace_back([&, rank] {
      const auto index = static_cast<std::size_t>(rank);
      const MeshCommunicators communicators(
          layout, rank,
          [&](const RankGroup& group) {
            return make_counting_communicator(
                made.make(group), link_to_next(group, layout.ranks_per_node), traffic[index]);
          },
          [&](std::unique_ptr<Communicator> communicator, const RankGroup& group) {
            wrapped[index].push_back(group.name);
            return communicator;
          });
      const at::Tensor whole = at::zeros({400}), part = at::ones({100});
      communicators.groups().shard->all_gather(whole, part)->wait();
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (std::size_t rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(wrapped[rank], (std::vector<std::string>{"world", "shard-0"}));
    EXPECT_EQ(traffic[rank].counts().of(Verb::kAllGather, Link::kAcrossNodes), 400);
    EXPECT_EQ(traffic[rank].counts().of(Verb::kAllGather, Link::kInsideNode), 800);
  }
}

MeshLayout layout_of(const ParallelConfig& config, const std::vector<int>& nodes) {
  return mesh_layout(config, nodes);
}

TEST(MeshLayout, FollowsFromSettingsAndNodes) {
  const std::vector<int> one_node(6, 0), two_nodes = {0, 0, 0, 1, 1, 1},
                                         uneven = {0, 0, 0, 0, 1, 1};
  ParallelConfig config{.strategy = Strategy::kHybridShard};
  EXPECT_EQ(layout_of(config, one_node).mesh, (Mesh{6, 1}));
  EXPECT_EQ(layout_of(config, two_nodes).mesh, (Mesh{3, 2}));
  EXPECT_FALSE(layout_of(config, two_nodes).two_level);
  EXPECT_EQ(layout_of(config, two_nodes).ranks_per_node, 3);
  EXPECT_THROW(layout_of(config, uneven), Error);
  config.shard_degree = 2;
  EXPECT_EQ(layout_of(config, uneven).mesh, (Mesh{2, 3}));
  config.shard_degree = 6;
  EXPECT_TRUE(layout_of(config, two_nodes).two_level);
  EXPECT_FALSE(layout_of(config, one_node).two_level);
  EXPECT_FALSE(layout_of(config, uneven).two_level);
  EXPECT_FALSE(layout_of(config, {0, 1, 2, 3, 4, 5}).two_level);  // one rank a node
  config.ranks_per_node = 2;                                      // declared
  EXPECT_TRUE(layout_of(config, one_node).two_level);
  config.hierarchical_gather = AutoBool::kFalse;
  EXPECT_FALSE(layout_of(config, one_node).two_level);
  config = {.strategy = Strategy::kFullShard, .ranks_per_node = 3};
  EXPECT_EQ(layout_of(config, one_node).mesh, (Mesh{6, 1}));
  EXPECT_TRUE(layout_of(config, one_node).two_level);
}

TEST(MeshLayout, RefusesTwoLevelsThatDoNotFit) {
  const auto refusal = [](const ParallelConfig& config, const std::vector<int>& nodes) {
    try {
      mesh_layout(config, nodes);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kUsage);
      return std::string(error.what());
    }
    return std::string("no error");
  };
  ParallelConfig config{.strategy = Strategy::kHybridShard,
                        .shard_degree = 3,
                        .ranks_per_node = 2,
                        .hierarchical_gather = AutoBool::kTrue};
  const std::vector<int> one_node(6, 0);
  EXPECT_NE(refusal(config, one_node).find("shard groups of 3 ranks do not fill whole nodes of 2"),
            std::string::npos);
  config.shard_degree = 2;
  EXPECT_EQ(refusal(config, one_node), "no error");
  config.ranks_per_node = 4;
  EXPECT_NE(refusal(config, one_node).find("nodes of 4 ranks do not divide 6 ranks"),
            std::string::npos);
}

}  // namespace
}  // namespace tessera
