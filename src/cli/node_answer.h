// One node's answer to another during `doctor --cluster`: a word by which it is known, and its
// clock. Owns: the port, its thread, asking. Not: what follows from it (cluster_report.h).
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

namespace tessera::cli {

// Answers everybody who connects, one after the other, until destroyed.
class NodeAnswer {
 public:
  // On a port of the system's choice at this address. Error{kComm}.
  NodeAnswer(const std::string& address, std::string token);
  ~NodeAnswer();
  NodeAnswer(const NodeAnswer&) = delete;
  NodeAnswer& operator=(const NodeAnswer&) = delete;
  int port() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

struct AskedNode {
  std::string failure;                         // empty: it answered with the token
  double clock_ahead_s = 0, round_trip_s = 0;  // of its clock against ours
};

AskedNode ask_node(const std::string& address, int port, const std::string& token,
                   std::chrono::steady_clock::time_point deadline);

}  // namespace tessera::cli
