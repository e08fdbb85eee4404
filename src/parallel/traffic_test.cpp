#include "parallel/traffic.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "parallel/fake_communicator.h"
#include "parallel/two_level_communicator.h"

namespace tessera {
namespace {

TEST(Traffic, CountsWhatTheBestAlgorithmSends) {
  Traffic traffic;
  const auto ranks =
      make_counting_communicator(make_fake_communicator(1, 4), Link::kInsideNode, traffic);
  const at::Tensor part = at::zeros({10}), whole = at::zeros({40});
  ranks->all_gather(whole, part)->wait();
  EXPECT_EQ(traffic.counts().of(Verb::kAllGather, Link::kInsideNode), 3 * 40);
  ranks->all_gather(whole, part)->wait();
  EXPECT_EQ(traffic.counts().of(Verb::kAllGather), 2 * 3 * 40);
  ranks->reduce_scatter(part, whole, ReduceOperation::kSum)->wait();
  EXPECT_EQ(traffic.counts().of(Verb::kReduceScatter), 3 * 40);
  ranks->all_reduce(whole.to(at::kBFloat16), ReduceOperation::kSum)->wait();
  EXPECT_EQ(traffic.counts().of(Verb::kAllReduce), 2 * 3 * 80 / 4);
  ranks->broadcast(part, 0)->wait();
  EXPECT_EQ(traffic.counts().of(Verb::kBroadcast), 40);
  ranks->broadcast(part, 2)->wait();  // the next one is the root, and has it
  EXPECT_EQ(traffic.counts().of(Verb::kBroadcast), 40);
  ranks->barrier()->wait();
  EXPECT_EQ(traffic.counts().of(Link::kInsideNode), 2 * 120 + 120 + 120 + 40);
  EXPECT_EQ(traffic.counts().of(Link::kAcrossNodes), 0);
  traffic.reset();
  EXPECT_EQ(traffic.counts(), TrafficCounts());
}

TEST(Traffic, TheLinkIsThatToTheNextRank) {
  const RankGroup group{.name = "shard-1", .ranks = {4, 5, 6, 7}};
  const auto link_of = [&group](int rank, int ranks_per_node) {
    RankGroup of_rank = group;
    of_rank.rank = rank;
    return link_to_next(of_rank, ranks_per_node);
  };
  EXPECT_EQ(link_of(0, 2), Link::kInsideNode);
  EXPECT_EQ(link_of(1, 2), Link::kAcrossNodes);
  EXPECT_EQ(link_of(2, 2), Link::kInsideNode);
  EXPECT_EQ(link_of(3, 2), Link::kAcrossNodes);
  EXPECT_EQ(link_of(3, 4), Link::kInsideNode);
  EXPECT_EQ(link_of(3, 0), Link::kInsideNode);
  EXPECT_EQ(link_of(0, 1), Link::kAcrossNodes);
}

// MiCS: across nodes (p - 1) M / p fall to (p - k) M / p a node, with p ranks, k of them a node.
TEST(Traffic, TwoLevelsSendLessAcrossNodes) {
  constexpr int kNodes = 3, kLocals = 4, kRanks = kNodes * kLocals;
  constexpr std::int64_t kPart = 1000 * 4, kWhole = kRanks * kPart;
  std::int64_t flat_across = 0, two_level_across = 0, two_level_inside = 0;
  for (int local = 0; local < kLocals; ++local) {  // of one node, not the last
    RankGroup group{.name = "shard-0", .rank = local};
    for (int rank = 0; rank < kRanks; ++rank) group.ranks.push_back(rank);
    const at::Tensor part = at::zeros({1000}), whole = at::zeros({1000 * kRanks});

    Traffic flat;
    make_counting_communicator(make_fake_communicator(local, kRanks), link_to_next(group, kLocals),
                               flat)
        ->all_gather(whole, part)
        ->wait();
    flat_across += flat.counts().of(Link::kAcrossNodes);

    Traffic two_level;
    const auto both = make_two_level_communicator(
        make_counting_communicator(make_fake_communicator(local, kLocals), Link::kInsideNode,
                                   two_level),
        make_counting_communicator(make_fake_communicator(0, kNodes), Link::kAcrossNodes,
                                   two_level));
    both->all_gather(whole, part)->wait();
    EXPECT_EQ(two_level.counts().of(Link::kAcrossNodes), (kNodes - 1) * kPart);
    two_level_across += two_level.counts().of(Link::kAcrossNodes);
    two_level_inside += two_level.counts().of(Link::kInsideNode);

    two_level.reset();
    both->reduce_scatter(part, whole, ReduceOperation::kSum)->wait();
    EXPECT_EQ(two_level.counts().of(Verb::kReduceScatter, Link::kAcrossNodes),
              (kNodes - 1) * kPart);
    EXPECT_EQ(two_level.counts().of(Verb::kReduceScatter, Link::kInsideNode),
              (kLocals - 1) * kNodes * kPart);
  }
  EXPECT_EQ(flat_across, (kRanks - 1) * kWhole / kRanks);
  EXPECT_EQ(two_level_across, (kRanks - kLocals) * kWhole / kRanks);
  EXPECT_EQ(two_level_inside, kLocals * (kLocals - 1) * kNodes * kPart);
}

}  // namespace
}  // namespace tessera
