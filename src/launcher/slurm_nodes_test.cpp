#include "launcher/slurm_nodes.h"

#include <gtest/gtest.h>

#include <map>

#include "base/error.h"

namespace tessera {
namespace {

using Variables = std::map<std::string, std::string, std::less<>>;

Environment of(Variables variables) {
  return [variables = std::move(variables)](std::string_view name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  };
}

Variables second_of_three() {
  return {{"SLURM_NNODES", "3"},
          {"SLURM_NODEID", "1"},
          {"SLURM_PROCID", "1"},
          {"SLURM_STEP_ID", "0"},
          {"SLURM_NTASKS", "3"},
          {"SLURM_JOB_ID", "77"},
          {"SLURM_STEP_NODELIST", "g[07-08],b1"}};
}

TEST(SlurmNodes, AStepWithATaskOnEachNode) {
  LaunchOptions options;
  ASSERT_TRUE(take_nodes_from_slurm(of(second_of_three()), options));
  EXPECT_EQ(options.nodes.min, 3);
  EXPECT_EQ(options.nodes.max, 3);
  EXPECT_EQ(options.node_rank, 1);
  EXPECT_EQ(options.endpoint_host, "g07");
  EXPECT_EQ(options.id, "slurm-77.0");
  LaunchOptions first, other_job;
  Variables changed = second_of_three();
  changed["SLURM_NODEID"] = changed["SLURM_PROCID"] = "0";
  take_nodes_from_slurm(of(changed), first);
  EXPECT_EQ(first.endpoint_port, options.endpoint_port);  // all nodes find the same
  changed["SLURM_JOB_ID"] = "78";
  take_nodes_from_slurm(of(changed), other_job);
  EXPECT_NE(other_job.endpoint_port, options.endpoint_port);
}

TEST(SlurmNodes, OthersAreLeftAlone) {
  LaunchOptions options;
  EXPECT_FALSE(take_nodes_from_slurm(of({}), options));
  Variables batch_shell = second_of_three();
  batch_shell.erase("SLURM_STEP_ID");
  EXPECT_FALSE(take_nodes_from_slurm(of(batch_shell), options));
  Variables one = second_of_three();
  one["SLURM_NNODES"] = "1";
  EXPECT_FALSE(take_nodes_from_slurm(of(one), options));
  options.endpoint_host = "mine";
  EXPECT_FALSE(take_nodes_from_slurm(of(second_of_three()), options));
  EXPECT_EQ(options.nodes.max, 1);
}

TEST(SlurmNodes, ContradictionsAreNamed) {
  const auto refused = [](Variables variables) {
    LaunchOptions options;
    try {
      take_nodes_from_slurm(of(std::move(variables)), options);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  Variables many = second_of_three();
  many["SLURM_NTASKS"] = "6";
  EXPECT_NE(refused(many).find("--ntasks-per-node=1"), std::string::npos);
  Variables short_list = second_of_three();
  short_list["SLURM_STEP_NODELIST"] = "g1";
  EXPECT_NE(refused(short_list).find("contradict"), std::string::npos);
  Variables no_number = second_of_three();
  no_number["SLURM_NODEID"] = "x";
  EXPECT_NE(refused(no_number).find("SLURM_NODEID"), std::string::npos);
}

}  // namespace
}  // namespace tessera
