#include "launcher/rank_environment.h"

#include <gtest/gtest.h>

#include <fstream>

#include "base/temporary_directory.h"

namespace tessera {
namespace {

Membership two_nodes(int self) {
  return {"job", "t", {{"u1", "a", 2, -1}, {"u2", "b", 3, -1}}, self};
}

TEST(Membership, RanksFollowTheOrderOfNodes) {
  std::vector<NodeInfo> nodes = {{"x", "b", 1, -1}, {"y", "c", 2, -1}, {"z", "a", 3, -1}};
  order_nodes(nodes, "y");  // the head goes first
  EXPECT_EQ(nodes[0].host, "c");
  EXPECT_EQ(nodes[1].host, "a");
  EXPECT_EQ(nodes[2].host, "b");
  nodes = {{"x", "a", 1, 2}, {"y", "b", 1, 0}, {"z", "c", 1, 1}};
  order_nodes(nodes, "y");
  EXPECT_EQ(nodes[1].host, "c");
  const Membership members = membership_from_json(to_json(two_nodes(0)));
  EXPECT_EQ(members.world_size(), 5);
  EXPECT_EQ(members.first_rank(1), 2);
  EXPECT_EQ(members.text(), "a (ranks 0-1), b (ranks 2-4)");
  EXPECT_EQ(members.nodes[1].unique, "u2");
}

TEST(RankEnvironment, IsTorchruns) {
  LaunchOptions options;
  options.local_ranks = 3;
  options.max_restarts = 4;
  options.environment["MINE"] = "yes";
  auto env = rank_environment(options, two_nodes(1), {"head", 29400}, 2, 1);
  const std::map<std::string, std::string> expected = {{"MINE", "yes"},
                                                       {"RANK", "3"},
                                                       {"LOCAL_RANK", "1"},
                                                       {"WORLD_SIZE", "5"},
                                                       {"LOCAL_WORLD_SIZE", "3"},
                                                       {"GROUP_RANK", "1"},
                                                       {"GROUP_WORLD_SIZE", "2"},
                                                       {"ROLE_RANK", "3"},
                                                       {"ROLE_WORLD_SIZE", "5"},
                                                       {"ROLE_NAME", "default"},
                                                       {"MASTER_ADDR", "head"},
                                                       {"MASTER_PORT", "29400"},
                                                       {"TORCHELASTIC_RESTART_COUNT", "2"},
                                                       {"TORCHELASTIC_MAX_RESTARTS", "4"},
                                                       {"TORCHELASTIC_RUN_ID", "job"},
                                                       {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                                                       {"TESSERA_LAUNCHER", "1"}};
  EXPECT_EQ(env, expected);
}

TEST(RankEnvironment, ThreadsAreSharedOut) {
  EXPECT_EQ(thread_share(16, 4), 4);
  EXPECT_EQ(thread_share(7, 2), 3);
  EXPECT_EQ(thread_share(2, 4), 1);
}

TEST(NumaProcessors, RanksAreSpreadOverNodes) {
  const TemporaryDirectory root;
  const auto node = [&](const std::string& name, const std::string& list) {
    std::filesystem::create_directories(root.path() / "sys/devices/system/node" / name);
    std::ofstream(root.path() / "sys/devices/system/node" / name / "cpulist") << list << "\n";
  };
  node("node0", "0");
  EXPECT_FALSE(numa_processors(0, 2, root.path()));  // one node only
  node("node1", "");                                 // memory only
  EXPECT_FALSE(numa_processors(0, 2, root.path()));
  cpu_set_t allowed;
  ASSERT_EQ(sched_getaffinity(0, sizeof allowed, &allowed), 0);
  if (!CPU_ISSET(0, &allowed) || !CPU_ISSET(1, &allowed))
    GTEST_SKIP() << "this process may not use processors 0 and 1";
  node("node2", "1-1,900");
  const auto first = numa_processors(0, 2, root.path()),
             second = numa_processors(1, 2, root.path());
  ASSERT_TRUE(first && second);
  EXPECT_EQ(CPU_COUNT(&*first), 1);
  EXPECT_TRUE(CPU_ISSET(0, &*first));
  EXPECT_EQ(CPU_COUNT(&*second), 1);
  EXPECT_TRUE(CPU_ISSET(1, &*second));
}

}  // namespace
}  // namespace tessera
