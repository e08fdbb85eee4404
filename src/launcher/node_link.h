// What the agents of a job tell each other while ranks run, through the job's store. Owns: a thread
// with a connection of its own, this node's heartbeat, and watching those of the others. Not: what
// follows from the news (attempt.h), nor who takes part (rendezvous.h).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launcher/membership.h"
#include "store/store_client.h"

namespace tessera {

// Keys below the agents' prefix. One place, because two files and several nodes must agree.
std::string round_key(int round, const std::string& name);
std::string beat_key(const std::string& unique);

class NodeLink {
 public:
  struct Options {
    StoreClient::Options store;
    std::string unique;  // of this node
    std::string head_host;
    bool head = false;
    double interval_s = 0.1;
    double heartbeat_timeout_s = 10;
  };
  explicit NodeLink(Options options);  // beats from now on; Error{kResource}
  ~NodeLink();
  NodeLink(const NodeLink&) = delete;
  NodeLink& operator=(const NodeLink&) = delete;

  // From now on the news are those of this round.
  void watch(int round, const Membership& members);

  void tell_stop(const std::string& why);      // the others stop their ranks
  void tell_signal(int number);                // the others forward it to their ranks
  void tell_end(const std::string& node_end);  // how this node's ranks have ended
  void tell_verdict(const std::string& verdict);
  // The head, after its verdict: until every node that is not lost has read it, 3 s at most.
  void wait_until_heard();

  struct News {
    std::optional<std::string> stop, verdict;
    int signal = 0;
    std::vector<std::optional<std::string>> ends;  // by node; of the head's link only
    std::vector<bool> lost;                        // by node; of the head's link only
    std::string lost_head;                         // why; empty: it is there
  };
  News news() const;
  int descriptor() const;  // readable when there are news; clear() makes it silent again
  void clear();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tessera
