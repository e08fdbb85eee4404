// What the nodes of a job found out about each other, and what follows from it. Owns: the facts of
// a node, judging them, the table and the JSON. Not: collecting them (doctor_cluster.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::cli {

// Of one node, told by its rank with local rank 0.
struct NodeFacts {
  int rank = 0;
  std::string host;
  std::string version, program, program_hash;
  std::string engine, engine_hash;  // empty: none there
  std::string engine_failure;       // empty: it loads
  std::string torch_version, torch_library;
  int processors = 0;
  std::uint64_t memory_bytes = 0, shm_bytes = 0, shm_free_bytes = 0;
  std::vector<std::string> gpus;
  std::string address, interface;  // on the way to the store
  int port = 0;                    // where it answers other nodes during the check
  std::string token;               // what it answers with, and what its mark in the folder holds
  std::string folder, folder_failure;
};

// What one node found out about the others.
struct NodeFindings {
  int rank = 0;
  std::vector<int> unreached,
      unseen;                        // ranks: no answer at their port; their mark not in the folder
  std::vector<std::string> reasons;  // of `unreached`, one each
  double clock_ahead_s = 0;          // of rank 0's clock; half the round trip is the error
  std::optional<double> round_trip_s;  // to rank 0; nothing: no answer
};

struct ClusterProblem {
  int exit_code = 0;  // 0: a warning
  std::string what, remedy;
};

struct ClusterReport {
  std::string launched_by, store;  // "host:port"
  int ranks = 0, nodes = 0;        // as the launcher says
  std::vector<NodeFacts> facts;    // by rank; those that reported
  std::vector<NodeFindings> findings;
  std::vector<int> ranks_of_node;          // beside `facts`: how many ranks of that host are here
  std::vector<int> missing_ranks;          // did not report
  std::vector<std::string> missing_hosts;  // of the launcher's list of nodes; may be empty
  std::vector<ClusterProblem> problems;

  // 5 a rank is not reached, else 4 the folder is not shared, else 1 a build differs or does not
  // work, else 0.
  int exit_code() const;
};

// The problems that follow from the rest, the gravest first. Pure.
std::vector<ClusterProblem> find_cluster_problems(const ClusterReport& report);

std::string cluster_text(const ClusterReport& report);
std::string cluster_json(const ClusterReport& report);  // one line without its newline

// As sent through the store. parse_…: Error{kComm} where the text is not such a value.
std::string to_json(const NodeFacts& facts);
std::string to_json(const NodeFindings& findings);
NodeFacts parse_node_facts(std::string_view text);
NodeFindings parse_node_findings(std::string_view text);

}  // namespace tessera::cli
