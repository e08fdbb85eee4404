// What is to be launched, as plain values. Owns: torchrun's notations ("2:4", "0:1,1:2",
// "join_timeout=60") and their checks. Not: the command line (cli/launch_command.cpp).
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file_system.h"

namespace tessera {

struct NodeRange {
  int min = 1, max = 1;
};

// Which of a rank's two streams: 0 none, 1 stdout, 2 stderr, 3 both; by local rank.
struct StreamChoice {
  int all = 0;
  std::map<int, int> each;  // instead of `all`, where it is not empty; others then have 0

  int of(int local_rank) const;
  bool any() const;
};

// Where output that goes neither to a file nor to a tee is shown.
enum class OutputStyle {
  kInherit,    // every rank writes to the agent's own streams
  kFirstRank,  // local rank 0 does; lines of the others go to stderr, with their rank before them
};

struct LaunchOptions {
  std::vector<std::string> command;                // program (found by find_program) and arguments
  std::map<std::string, std::string> environment;  // for the ranks, on top of the inherited one
  int local_ranks = 1;

  NodeRange nodes;
  std::optional<int> node_rank;  // 0 hosts the store
  std::string endpoint_host;     // of the store; empty with one node
  int endpoint_port = 0;         // 0: any free one (one node only)
  std::string local_address;     // empty: found out
  std::string id;                // of the job; empty: made up by the node that hosts the store
  double join_timeout_s = 600;   // for the least number of nodes to come
  double last_call_s = 5;        // for further nodes after the least number has come
  double heartbeat_timeout_s = 10;

  int max_restarts = 0;
  double first_restart_delay_s = 1;  // doubles with each restart, 30 s at most
  double monitor_interval_s = 0.1;   // between two looks at what other nodes say
  double shutdown_timeout_s = 30;    // after a forwarded SIGINT or SIGTERM, before SIGKILL

  Path log_dir;  // empty: no log files
  StreamChoice redirects, tee;
  std::optional<std::vector<int>> shown_local_ranks;  // nothing: all
  OutputStyle style = OutputStyle::kInherit;
  std::vector<int> signals;  // forwarded besides SIGINT, SIGTERM and SIGUSR1
  bool bind_to_numa_nodes = false;
};

// All throw Error{kUsage} that names the option and shows what is valid.
NodeRange parse_node_range(std::string_view text);                                 // "2", "1:4"
StreamChoice parse_stream_choice(std::string_view option, std::string_view text);  // "3", "0:1,1:2"
std::vector<int> parse_rank_list(std::string_view option, std::string_view text);  // "0,2"
std::vector<int> parse_signals(std::string_view text);  // "SIGHUP,SIGUSR2"
// "host:29400", "host" (then `default_port`), "[::1]:29400".
void parse_endpoint(std::string_view text, int default_port, LaunchOptions& options);
// "join_timeout=60,last_call_timeout=5,heartbeat_timeout=10"; torchrun's other keys are refused
// with what to do instead.
void parse_rendezvous_settings(std::string_view text, LaunchOptions& options);

// As a shell finds it: a path as it is, a name along PATH; whole path. Error{kUsage}: not there,
// not executable, a folder.
std::string find_program(const std::string& name);

}  // namespace tessera
