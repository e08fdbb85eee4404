#include "parallel/mesh.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace tessera {
namespace {

TEST(Mesh, FollowsFromStrategyDegreeAndNodes) {
  const struct {
    Strategy strategy;
    int degree, world_size, ranks_per_node;
    Mesh mesh;
  } kCases[] = {
      {Strategy::kNone, 0, 1, 1, {1, 1}},
      {Strategy::kAuto, 0, 1, 1, {1, 1}},
      {Strategy::kAuto, 0, 6, 3, {1, 6}},
      {Strategy::kAuto, 2, 6, 3, {2, 3}},
      {Strategy::kDdp, 0, 4, 4, {1, 4}},
      {Strategy::kFullShard, 0, 6, 3, {6, 1}},
      {Strategy::kFullShard, 0, 1, 1, {1, 1}},
      {Strategy::kShardGradOp, 3, 6, 3, {3, 2}},
      {Strategy::kHybridShard, 0, 6, 3, {3, 2}},
      {Strategy::kHybridShard, 0, 6, 2, {2, 3}},
      {Strategy::kHybridShard, 0, 4, 4, {4, 1}},  // one node: all of it
      {Strategy::kHybridShard, 0, 4, 8, {4, 1}},
      {Strategy::kHybridShard, 4, 8, 2, {4, 2}},  // groups of two nodes
      {Strategy::kHybridShardZero2, 1, 4, 4, {1, 4}},
      {Strategy::kHybridShardZero2, 4, 4, 2, {4, 1}},
  };
  for (const auto& item : kCases) {
    EXPECT_EQ(mesh_of(item.strategy, item.degree, item.world_size, item.ranks_per_node), item.mesh)
        << to_string(item.strategy) << " " << item.degree << " of " << item.world_size;
  }
}

std::string refusal(Strategy strategy, int degree, int world_size, int ranks_per_node) {
  try {
    mesh_of(strategy, degree, world_size, ranks_per_node);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUsage);
    return error.what();
  }
  return "no error";
}

TEST(Mesh, ADegreeThatDoesNotDivideTheRanksIsRefusedWithThoseThatDo) {
  EXPECT_EQ(refusal(Strategy::kHybridShard, 4, 6, 6),
            "shard groups of 4 do not divide 6 ranks (parallel.shard_degree). Set it to 1, 2, 3 or "
            "6, or start another number of ranks.");
  EXPECT_NE(refusal(Strategy::kFullShard, 8, 4, 4).find("Set it to 1, 2 or 4,"), std::string::npos);
  EXPECT_NE(refusal(Strategy::kHybridShard, 2, 1, 1).find("do not divide 1 rank "),
            std::string::npos);
  EXPECT_NE(refusal(Strategy::kHybridShard, 0, 6, 4).find("nodes of 4 ranks do not divide 6 ranks"),
            std::string::npos);
  EXPECT_NE(refusal(Strategy::kNone, 0, 2, 2).find("parallel.strategy is none"), std::string::npos);
}

TEST(Mesh, SaysWhenItIsThatOfAnotherStrategy) {
  EXPECT_EQ(remark_on_mesh(Strategy::kDdp, {1, 4}), "");
  EXPECT_EQ(remark_on_mesh(Strategy::kFullShard, {4, 1}), "");
  EXPECT_EQ(remark_on_mesh(Strategy::kHybridShard, {2, 2}), "");
  EXPECT_EQ(remark_on_mesh(Strategy::kHybridShard, {1, 1}), "");
  EXPECT_NE(remark_on_mesh(Strategy::kHybridShard, {4, 1}).find("as full_shard does"),
            std::string::npos);
  EXPECT_NE(remark_on_mesh(Strategy::kHybridShardZero2, {4, 1}).find("as shard_grad_op does"),
            std::string::npos);
  EXPECT_NE(remark_on_mesh(Strategy::kHybridShard, {1, 4}).find("as ddp does"), std::string::npos);
  EXPECT_NE(remark_on_mesh(Strategy::kAuto, {2, 2}).find("is hybrid_shard."), std::string::npos);
  EXPECT_NE(remark_on_mesh(Strategy::kShardGradOp, {2, 2}).find("is hybrid_shard_zero2."),
            std::string::npos);
}

}  // namespace
}  // namespace tessera
