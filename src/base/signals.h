// Requests that arrive as signals. Owns: the process's handlers for SIGINT, SIGTERM, SIGHUP and
// SIGUSR1.
// Signal handlers can only reach objects of static storage: the counters behind this class are the
// one exception to the rule against globals.
#pragma once

namespace tessera {

// While an object lives: the first SIGINT or SIGTERM asks to save and stop, a second one ends the
// process at once with 130 or 143 and says that nothing was saved; SIGHUP (the
// terminal has gone), unless it is ignored, is a SIGTERM that may be repeated; SIGUSR1 asks to save
// and go on.
// At most one object at a time.
class SignalRequests {
 public:
  // announce: the first signal is answered by a line on stderr.
  explicit SignalRequests(bool announce = false);
  ~SignalRequests();
  SignalRequests(const SignalRequests&) = delete;
  SignalRequests& operator=(const SignalRequests&) = delete;

  int stop_signal() const;   // SIGINT or SIGTERM when asked to stop, else 0
  bool take_save_request();  // true once for each SIGUSR1 or burst of them
};

}  // namespace tessera
