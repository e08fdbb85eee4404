// One rank as a process. Owns: starting it (streams, environment, processors, process group),
// signals to it, its end. Not: when to do so (attempt.h).
#pragma once

#include <sched.h>
#include <sys/types.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/file_system.h"
#include "launcher/group_guardian.h"
#include "launcher/signal_inbox.h"

namespace tessera {

struct RankSpec {
  int rank = 0, local_rank = 0;
  std::vector<std::string> command;                // command[0]: whole path
  std::map<std::string, std::string> environment;  // on top of the agent's own
  int standard_output = 1, standard_error = 2;     // descriptors; not owned
  bool reads_input = false;                        // else its stdin is empty
  std::optional<cpu_set_t> processors;             // nothing: the agent's own
  std::string error_file;
};

// The process leads a group of its own, so that a Ctrl-C of the terminal reaches it by way of the
// agent only, and a signal reaches what it has started, too. It dies with the thread that made the
// object.
class RankProcess {
 public:
  // Error{kUsage}: the program cannot be executed; Error{kResource}: no process.
  RankProcess(const RankSpec& spec, const SignalInbox& inbox, GroupGuardian& guardian);
  RankProcess(const RankProcess&) = delete;
  RankProcess& operator=(const RankProcess&) = delete;
  ~RankProcess();  // kills what still runs

  int rank() const { return rank_; }
  int local_rank() const { return local_rank_; }
  pid_t process() const { return process_; }
  const std::string& error_file() const { return error_file_; }

  void signal(int number);  // to the whole group; nothing once it has ended
  // True when the process has just been found to have ended.
  bool poll_end();
  bool ended() const { return ended_; }
  void give_up();  // counts as ended by SIGKILL: it does not leave the kernel
  int exit_code() const { return exit_code_; }    // 0 where a signal ended it
  int end_signal() const { return end_signal_; }  // else 0
  double end_time() const { return end_time_; }   // seconds since the epoch
  bool good() const { return ended_ && exit_code_ == 0 && end_signal_ == 0; }

 private:
  GroupGuardian& guardian_;
  int rank_, local_rank_;
  std::string error_file_;
  pid_t process_ = -1;
  bool ended_ = false;
  int exit_code_ = 0, end_signal_ = 0;
  double end_time_ = 0;
};

double seconds_since_epoch();

}  // namespace tessera
