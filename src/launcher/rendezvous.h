// How the nodes of a job find together before each attempt. Owns: registering, waiting for the
// least number of nodes and the last call, who is taken. Not: what happens while ranks run
// (node_link.h).
//
// The agent that hosts the store is the head and decides: a job ends with it anyway, so nothing is
// gained by electing one. Others register and read the decision.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>

#include "base/log.h"
#include "launcher/launch_options.h"
#include "launcher/membership.h"
#include "store/store_client.h"

namespace tessera {

class Rendezvous {
 public:
  struct Options {
    StoreClient::Options store;
    NodeInfo self;
    bool head = false;
    NodeRange nodes;
    double join_timeout_s = 600, last_call_s = 5, heartbeat_timeout_s = 10;
    std::string job, token;  // the head's
  };
  // `interrupted` is asked every tenth of a second; when it says yes, waiting ends.
  Rendezvous(Options options, std::function<bool()> interrupted, Log& log);

  struct Outcome {
    Membership members;
    int round = 0;
    std::optional<int> over;  // the job has ended, with this exit code, before this node was taken
  };
  // The next attempt's nodes. Nothing: interrupted. Error{kComm}: too few nodes within
  // join_timeout, two with the same node rank, the head is gone.
  std::optional<Outcome> join();
  // The head: nodes that wait for the next attempt learn that there is none.
  void end(int exit_code);

 private:
  std::optional<Outcome> lead();
  std::optional<Outcome> follow();
  std::vector<NodeInfo> present_nodes();
  void check(const std::vector<NodeInfo>& nodes) const;
  bool enough(std::size_t count);
  [[noreturn]] void refuse(const std::string& why, const std::string& remedy);
  bool pause() const;  // false: interrupted

  struct Beat {
    std::string value;
    std::chrono::steady_clock::time_point changed;
  };

  Options options_;
  std::function<bool()> interrupted_;
  Log& log_;
  std::optional<StoreClient> client_;
  int round_ = -1;
  std::vector<NodeInfo> registered_;  // of this round, by the head
  std::map<std::string, Beat> beats_;
  std::chrono::steady_clock::time_point begun_, enough_since_;
  bool last_call_ = false;
};

}  // namespace tessera
