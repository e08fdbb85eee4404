// Signals as messages that a loop reads. Owns: the signal mask and a descriptor that becomes
// readable. Needs no handler, so no global state.
#pragma once

#include <signal.h>

#include <vector>

namespace tessera {

// While an object lives, the signals given and SIGCHLD are blocked in this thread and in threads
// that it starts from then on, and SIGPIPE is ignored; make it before any other thread. A SIGHUP
// that was ignored when the process started (nohup) stays ignored.
class SignalInbox {
 public:
  explicit SignalInbox(const std::vector<int>& signals);  // Error{kResource}
  ~SignalInbox();
  SignalInbox(const SignalInbox&) = delete;
  SignalInbox& operator=(const SignalInbox&) = delete;

  int descriptor() const { return descriptor_; }
  // What has arrived, SIGCHLD left out.
  std::vector<int> take();
  // The mask from before, which a child must restore between fork and exec.
  const sigset_t& original_mask() const { return original_; }

 private:
  sigset_t original_;
  struct sigaction old_pipe_;
  std::vector<int> were_ignored_;
  int descriptor_ = -1;
};

}  // namespace tessera
