// How ranks end, and which end was the cause. Owns: the order of failures, the closing summary, the
// verdict on one attempt, and their JSON, in which agents tell each other. Not: processes.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

struct RankFailure {
  int rank = 0, local_rank = 0;
  std::string host;
  long process = 0;        // pid; 0: a whole node is gone; -1: never started
  int exit_code = 0;       // of the process; 0 where a signal ended it
  int signal = 0;          // that ended it, else 0
  double time = 0;         // seconds since the epoch
  std::string error_file;  // where the rank wrote one
  std::string message;     // from it, or what else is known; may be empty

  // What the launcher exits with: the rank's own code, 5 for one ended by a signal or lost.
  int launcher_code() const;
  // A rank that could not reach another one tells of a consequence: a failure with another code or
  // a signal, even if it is seen a little later, is the cause.
  bool is_consequence() const { return signal == 0 && exit_code == 5; }
  // "rank 1 (host a) exited with code 7: message", without a final stop where there is a message.
  std::string cause() const;
};

std::string signal_name(int number);  // "SIGKILL"; "signal 70" where it has no name

// The cause first: by time, consequences last.
void order_failures(std::vector<RankFailure>& failures);

// The message and the time (0: none) in a file that a rank wrote by torchrun's convention; nothing
// where there is none or it is not of that form.
struct ErrorFileContent {
  std::string message;
  double time = 0;
};
std::optional<ErrorFileContent> read_error_file(const std::string& path);

// As torchrun lays it out: all failures, the cause last. Takes them in the order of order_failures.
std::string failure_summary(std::string_view job, const std::vector<RankFailure>& failures);

// How the ranks of one node ended.
struct NodeEnd {
  std::vector<RankFailure> failures;
  int stop_signal = 0;  // forwarded to the ranks, or by which they stopped of their own accord
  int code = 0;         // common exit code of the ranks that did not fail (0, 130, 143 …)
};

enum class AfterAttempt { kEnd, kRestart };

// What all agents do after an attempt; made by the agent that hosts the store.
struct Verdict {
  AfterAttempt action = AfterAttempt::kEnd;
  int exit_code = 0;
  double delay_s = 0;  // before a restart
  std::string remark;  // why there is no (further) restart, or how many have been; may be empty
  std::vector<RankFailure> failures;  // ordered
};

struct RestartBudget {
  int used = 0, max = 0;
  double first_delay_s = 1;
};

// A pure function, so that its rules can be tested: no restart where nothing failed, a stop was
// asked for, the code says that it would fail again (2 usage or config, 3 data), or no restart is
// left.
Verdict judge(const std::vector<NodeEnd>& nodes, const RestartBudget& budget);

std::string to_json(const NodeEnd& end);
std::string to_json(const Verdict& verdict);
NodeEnd node_end_from_json(const std::string& text);  // Error{kComm}: not such a text
Verdict verdict_from_json(const std::string& text);   // Error{kComm}

}  // namespace tessera
