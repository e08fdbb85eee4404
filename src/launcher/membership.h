// Which nodes take part in one attempt, and which ranks they have. Owns: their order and its JSON.
#pragma once

#include <string>
#include <vector>

namespace tessera {

struct NodeInfo {
  std::string unique;  // names one agent process
  std::string host;    // its host's name, or the address that it was told to use
  int local_ranks = 1;
  int node_rank = -1;  // as the user gave it; -1: not given
};

struct Membership {
  std::string job;              // id of the job, the same on all nodes
  std::string token;            // tells this launch from others of the same id
  std::vector<NodeInfo> nodes;  // in the order of their ranks; the first hosts the store
  int self = 0;                 // this node's place among them

  int world_size() const;
  int first_rank(int node) const;
  // "a (ranks 0-1), b (rank 2)"
  std::string text() const;
};

// The head first, then by node_rank where it is given, then by host.
void order_nodes(std::vector<NodeInfo>& nodes, const std::string& unique_of_head);

std::string to_json(const NodeInfo& node);
NodeInfo node_info_from_json(const std::string& text);  // Error{kComm}
std::string to_json(const Membership& members);         // without `self`
// In place of one: why there is none. membership_from_json then throws Error{kComm} with it.
std::string refusal_json(const std::string& why);
Membership membership_from_json(const std::string& text);

}  // namespace tessera
