// The cluster's report as JSON: on the way between nodes, and for scripts.
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "cli/cluster_report.h"

namespace tessera::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string dumped(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

template <typename Value, typename Read>
Value parsed(std::string_view text, const char* what, Read read) {
  try {
    return read(Json::parse(text));
  } catch (const nlohmann::json::exception& error) {
    throw Error(ErrorKind::kComm,
                std::string("what a node told as its ") + what + " is damaged: " + error.what(), {},
                "Run the same build on every node.");
  }
}

Json facts_json(const NodeFacts& node) {
  return {{"rank", node.rank},
          {"host", node.host},
          {"version", node.version},
          {"program", node.program},
          {"program_hash", node.program_hash},
          {"engine", node.engine},
          {"engine_hash", node.engine_hash},
          {"engine_failure", node.engine_failure},
          {"torch_version", node.torch_version},
          {"torch_library", node.torch_library},
          {"processors", node.processors},
          {"memory_bytes", node.memory_bytes},
          {"shm_bytes", node.shm_bytes},
          {"shm_free_bytes", node.shm_free_bytes},
          {"gpus", node.gpus},
          {"address", node.address},
          {"interface", node.interface},
          {"port", node.port},
          {"folder", node.folder},
          {"folder_failure", node.folder_failure}};
}

Json findings_json(const NodeFindings& findings) {
  return {{"rank", findings.rank},
          {"unreached", findings.unreached},
          {"reasons", findings.reasons},
          {"unseen", findings.unseen},
          {"clock_ahead_s", findings.round_trip_s ? Json(findings.clock_ahead_s) : Json()},
          {"round_trip_s", findings.round_trip_s ? Json(*findings.round_trip_s) : Json()}};
}

}  // namespace

std::string to_json(const NodeFacts& facts) {
  Json json = facts_json(facts);
  json["token"] = facts.token;
  return dumped(json);
}

std::string to_json(const NodeFindings& findings) { return dumped(findings_json(findings)); }

NodeFacts parse_node_facts(std::string_view text) {
  return parsed<NodeFacts>(text, "facts", [](const Json& json) {
    NodeFacts node;
    json.at("rank").get_to(node.rank);
    json.at("host").get_to(node.host);
    json.at("version").get_to(node.version);
    json.at("program").get_to(node.program);
    json.at("program_hash").get_to(node.program_hash);
    json.at("engine").get_to(node.engine);
    json.at("engine_hash").get_to(node.engine_hash);
    json.at("engine_failure").get_to(node.engine_failure);
    json.at("torch_version").get_to(node.torch_version);
    json.at("torch_library").get_to(node.torch_library);
    json.at("processors").get_to(node.processors);
    json.at("memory_bytes").get_to(node.memory_bytes);
    json.at("shm_bytes").get_to(node.shm_bytes);
    json.at("shm_free_bytes").get_to(node.shm_free_bytes);
    json.at("gpus").get_to(node.gpus);
    json.at("address").get_to(node.address);
    json.at("interface").get_to(node.interface);
    json.at("port").get_to(node.port);
    json.at("token").get_to(node.token);
    json.at("folder").get_to(node.folder);
    json.at("folder_failure").get_to(node.folder_failure);
    return node;
  });
}

NodeFindings parse_node_findings(std::string_view text) {
  return parsed<NodeFindings>(text, "findings", [](const Json& json) {
    NodeFindings findings;
    json.at("rank").get_to(findings.rank);
    json.at("unreached").get_to(findings.unreached);
    json.at("reasons").get_to(findings.reasons);
    json.at("unseen").get_to(findings.unseen);
    if (!json.at("round_trip_s").is_null()) {
      findings.round_trip_s = json.at("round_trip_s").get<double>();
      json.at("clock_ahead_s").get_to(findings.clock_ahead_s);
    }
    return findings;
  });
}

std::string cluster_json(const ClusterReport& report) {
  Json nodes = Json::array(), problems = Json::array();
  for (std::size_t i = 0; i < report.facts.size(); ++i) {
    Json node = facts_json(report.facts[i]);
    node["ranks"] = report.ranks_of_node[i];
    node["findings"] = Json();
    for (const NodeFindings& findings : report.findings) {
      if (findings.rank == report.facts[i].rank) node["findings"] = findings_json(findings);
    }
    nodes.push_back(std::move(node));
  }
  for (const ClusterProblem& problem : report.problems)
    problems.push_back(
        {{"what", problem.what}, {"remedy", problem.remedy}, {"exit_code", problem.exit_code}});
  return dumped({{"ok", report.exit_code() == 0},
                 {"exit_code", report.exit_code()},
                 {"launched_by", report.launched_by},
                 {"ranks", report.ranks},
                 {"nodes", report.nodes},
                 {"store", report.store},
                 {"missing_ranks", report.missing_ranks},
                 {"missing_hosts", report.missing_hosts},
                 {"reports", nodes},
                 {"problems", problems}});
}

}  // namespace tessera::cli
