#include "launcher/membership.h"

#include <algorithm>
#include <climits>
#include <nlohmann/json.hpp>
#include <tuple>

#include "base/error.h"

namespace tessera {
namespace {

using Json = nlohmann::json;

Json json_of(const NodeInfo& node) {
  return {{"unique", node.unique},
          {"host", node.host},
          {"local_ranks", node.local_ranks},
          {"node_rank", node.node_rank}};
}

NodeInfo node_of(const Json& json) {
  NodeInfo node;
  node.unique = json.at("unique");
  node.host = json.at("host");
  node.local_ranks = json.at("local_ranks");
  node.node_rank = json.at("node_rank");
  if (node.local_ranks < 1) throw Error(ErrorKind::kComm, "a node without ranks has registered");
  return node;
}

template <class Read>
auto read(const std::string& text, Read from) {
  try {
    return from(Json::parse(text));
  } catch (const Json::exception& error) {
    throw Error(ErrorKind::kComm,
                std::string("the agents of this job do not understand each other: ") + error.what(),
                {}, "All nodes must run the same version of tessera.");
  }
}

}  // namespace

int Membership::world_size() const { return first_rank(static_cast<int>(nodes.size())); }

int Membership::first_rank(int node) const {
  int rank = 0;
  for (int i = 0; i < node; ++i) rank += nodes[static_cast<std::size_t>(i)].local_ranks;
  return rank;
}

std::string Membership::text() const {
  std::string text;
  for (int i = 0; i < static_cast<int>(nodes.size()); ++i) {
    const int first = first_rank(i), last = first_rank(i + 1) - 1;
    text += (i == 0 ? "" : ", ") + nodes[static_cast<std::size_t>(i)].host + " (rank" +
            (first == last ? " " + std::to_string(first)
                           : "s " + std::to_string(first) + "-" + std::to_string(last)) +
            ")";
  }
  return text;
}

void order_nodes(std::vector<NodeInfo>& nodes, const std::string& unique_of_head) {
  const auto key = [&](const NodeInfo& node) {
    return std::tuple(node.unique != unique_of_head, node.node_rank < 0 ? INT_MAX : node.node_rank,
                      node.host, node.unique);
  };
  std::sort(nodes.begin(), nodes.end(),
            [&](const NodeInfo& a, const NodeInfo& b) { return key(a) < key(b); });
}

std::string to_json(const NodeInfo& node) { return json_of(node).dump(); }

NodeInfo node_info_from_json(const std::string& text) { return read(text, node_of); }

std::string to_json(const Membership& members) {
  Json nodes = Json::array();
  for (const NodeInfo& node : members.nodes) nodes.push_back(json_of(node));
  return Json{{"job", members.job}, {"token", members.token}, {"nodes", nodes}}.dump();
}

std::string refusal_json(const std::string& why) {
  return Json{{"error", why}}.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Membership membership_from_json(const std::string& text) {
  return read(text, [](const Json& json) {
    if (json.contains("error")) throw Error(ErrorKind::kComm, json.at("error").get<std::string>());
    Membership members;
    members.job = json.at("job");
    members.token = json.at("token");
    for (const Json& node : json.at("nodes")) members.nodes.push_back(node_of(node));
    return members;
  });
}

}  // namespace tessera
