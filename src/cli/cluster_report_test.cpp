#include "cli/cluster_report.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"

namespace tessera::cli {
namespace {

NodeFacts node(int rank, const std::string& host) {
  NodeFacts facts;
  facts.rank = rank;
  facts.host = host;
  facts.version = "1";
  facts.program = "/shared/bin/tessera";
  facts.program_hash = "aaaaaaaaaaaa";
  facts.engine = "/shared/lib/libtessera_engine.so";
  facts.engine_hash = "bbbbbbbbbbbb";
  facts.torch_version = "2.13.0+cpu";
  facts.processors = 8;
  facts.memory_bytes = std::uint64_t{64} << 30;
  facts.shm_bytes = facts.shm_free_bytes = std::uint64_t{32} << 30;
  facts.address = "10.0.0." + std::to_string(rank + 1);
  facts.interface = "eth0";
  facts.port = 40000 + rank;
  facts.token = "token" + std::to_string(rank);
  facts.folder = "/shared/runs";
  return facts;
}

NodeFindings found_all(int rank) {
  NodeFindings findings;
  findings.rank = rank;
  findings.clock_ahead_s = rank * 0.002;
  findings.round_trip_s = 0.0004;
  return findings;
}

ClusterReport healthy_cluster() {
  ClusterReport report;
  report.launched_by = "Slurm";
  report.store = "10.0.0.1:23456";
  report.ranks = 4;
  report.nodes = 2;
  report.facts = {node(0, "a1"), node(2, "a2")};
  report.ranks_of_node = {2, 2};
  report.findings = {found_all(0), found_all(2)};
  return report;
}

// The gravest problem, and the code that follows from all.
void expect_problem(ClusterReport report, int exit_code, const std::vector<std::string>& parts) {
  report.problems = find_cluster_problems(report);
  ASSERT_FALSE(report.problems.empty());
  EXPECT_EQ(report.exit_code(), exit_code);
  EXPECT_EQ(report.problems.front().exit_code, exit_code);
  for (const std::string& part : parts)
    EXPECT_NE(report.problems.front().what.find(part), std::string::npos)
        << "no '" << part << "' in: " << report.problems.front().what;
  EXPECT_FALSE(report.problems.front().remedy.empty());
}

TEST(ClusterReportTest, EqualNodesThatSeeEachOtherAreFine) {
  ClusterReport report = healthy_cluster();
  report.problems = find_cluster_problems(report);
  EXPECT_TRUE(report.problems.empty());
  EXPECT_EQ(report.exit_code(), 0);
  const std::string text = cluster_text(report);
  for (const char* part : {"4 ranks on 2 nodes", "Slurm", "10.0.0.1:23456", "a2", "10.0.0.3 eth0",
                           "2.13.0+cpu", "+4.0 ms", "can train together"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
}

TEST(ClusterReportTest, NamesTheNodeThatIsNotReached) {
  ClusterReport report = healthy_cluster();
  report.missing_ranks = {3};
  report.missing_hosts = {"a7"};
  expect_problem(report, 5, {"rank 3", "a7", "10.0.0.1:23456"});
  report = healthy_cluster();
  report.findings[0].unreached = {2};
  report.findings[0].reasons = {"connection refused"};
  expect_problem(report, 5, {"a1 does not reach a2", "10.0.0.3:40002", "connection refused"});
  report = healthy_cluster();
  report.findings.pop_back();
  expect_problem(report, 5, {"a2"});
}

TEST(ClusterReportTest, NamesTheNodeWhoseFolderIsAnother) {
  ClusterReport report = healthy_cluster();
  report.findings[1].unseen = {0};
  expect_problem(report, 4, {"a2 does not see", "a1", "/shared/runs"});
  report = healthy_cluster();
  report.facts[1].folder_failure = "read-only";
  expect_problem(report, 4, {"a2", "read-only"});
}

TEST(ClusterReportTest, NamesTheNodeWithAnotherBuild) {
  ClusterReport report = healthy_cluster();
  report.facts[1].program_hash = "cccccccccccc";
  expect_problem(report, 1, {"program differs", "a2", "cccccccc", "aaaaaaaa"});
  report = healthy_cluster();
  report.facts[1].engine_hash = "cccccccccccc";
  expect_problem(report, 1, {"engine differs", "a2"});
  report = healthy_cluster();
  report.facts[1].torch_version = "2.14.1";
  expect_problem(report, 1, {"torch differs", "2.14.1", "2.13.0+cpu"});
  report = healthy_cluster();
  report.facts[0].engine_failure = "libtorch_cpu.so: cannot open";
  expect_problem(report, 1, {"a1", "libtorch_cpu.so"});
}

TEST(ClusterReportTest, WarnsOfClocksAndUnlikeNodes) {
  ClusterReport report = healthy_cluster();
  report.findings[1].clock_ahead_s = -2.5;
  expect_problem(report, 0, {"a2", "2.5 s behind"});
  report = healthy_cluster();
  report.facts[1].shm_free_bytes = 1 << 20;
  expect_problem(report, 0, {"/dev/shm of a2"});
  report = healthy_cluster();
  report.facts[1].processors = 4;
  expect_problem(report, 0, {"a2 has 4 processors"});
  report = healthy_cluster();
  report.facts[1].gpus = {"H200"};
  expect_problem(report, 0, {"a2 has 1 GPU"});
}

TEST(ClusterReportTest, TheGravestDecides) {
  ClusterReport report = healthy_cluster();
  report.facts[1].engine_hash = "c";
  report.findings[0].unseen = {2};
  report.findings[1].clock_ahead_s = 9;
  report.problems = find_cluster_problems(report);
  EXPECT_EQ(report.exit_code(), 4);
  report.missing_ranks = {1};
  report.problems = find_cluster_problems(report);
  EXPECT_EQ(report.exit_code(), 5);
  EXPECT_EQ(report.problems.size(), 4u);
  EXPECT_EQ(report.problems.back().exit_code, 0);
}

TEST(ClusterReportTest, WhatIsSentIsWhatArrives) {
  NodeFacts facts = node(3, "host \"x\"");
  facts.gpus = {"one", "two"};
  facts.folder_failure = "no";
  const NodeFacts back = parse_node_facts(to_json(facts));
  EXPECT_EQ(to_json(back), to_json(facts));
  EXPECT_EQ(back.token, "token3");
  NodeFindings findings = found_all(3);
  findings.unreached = {1};
  findings.reasons = {"why"};
  findings.unseen = {2};
  EXPECT_EQ(to_json(parse_node_findings(to_json(findings))), to_json(findings));
  findings.round_trip_s.reset();
  EXPECT_FALSE(parse_node_findings(to_json(findings)).round_trip_s.has_value());
  EXPECT_THROW(parse_node_facts("garbage"), Error);
  EXPECT_THROW(parse_node_findings("{\"rank\": \"x\"}"), Error);
}

TEST(ClusterReportTest, JsonForScriptsHoldsNoTokens) {
  ClusterReport report = healthy_cluster();
  report.findings[1].unseen = {0};
  report.problems = find_cluster_problems(report);
  const std::string text = cluster_json(report);
  EXPECT_EQ(text.find("token"), std::string::npos);
  const auto json = nlohmann::json::parse(text);
  EXPECT_EQ(json["ok"], false);
  EXPECT_EQ(json["exit_code"], 4);
  EXPECT_EQ(json["reports"].size(), 2u);
  EXPECT_EQ(json["reports"][1]["findings"]["unseen"][0], 0);
  EXPECT_EQ(json["problems"][0]["exit_code"], 4);
}

}  // namespace
}  // namespace tessera::cli
