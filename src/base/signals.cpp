#include "base/signals.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

namespace tessera {
namespace {

volatile sig_atomic_t stop_signal_seen = 0;
volatile sig_atomic_t save_requested = 0;
volatile sig_atomic_t announce_stop = 0;
struct sigaction old_interrupt, old_terminate, old_hangup, old_user;

void on_stop(int signal_number) {
  if (stop_signal_seen != 0) {
    static constexpr char kMessage[] =
        "\nerror: stopped by a second signal: not saved since the last checkpoint. Run the same "
        "command again to resume "
        "from it.\n";
    const ssize_t ignored = ::write(STDERR_FILENO, kMessage, sizeof kMessage - 1);
    (void)ignored;
    ::_exit(128 + signal_number);
  }
  stop_signal_seen = signal_number;
  if (announce_stop == 0) return;
  static constexpr char kAnswer[] =
      "\nstopping: saves at the end of this step; a second signal ends at once, unsaved\n";
  const ssize_t ignored = ::write(STDERR_FILENO, kAnswer, sizeof kAnswer - 1);
  (void)ignored;
}

// The terminal has gone, and with it whoever could repeat the signal: it may come more than once,
// from the kernel and from a shell, and never means "at once".
void on_hangup(int) {
  if (stop_signal_seen == 0) stop_signal_seen = SIGTERM;
}

void on_save(int) { save_requested = 1; }

void install(int signal_number, void (*handler)(int), struct sigaction& old) {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(signal_number, &action, &old);
}

}  // namespace

SignalRequests::SignalRequests(bool announce) {
  announce_stop = announce ? 1 : 0;
  stop_signal_seen = 0;
  save_requested = 0;
  install(SIGINT, on_stop, old_interrupt);
  install(SIGTERM, on_stop, old_terminate);
  install(SIGHUP, on_hangup, old_hangup);
  if (old_hangup.sa_handler == SIG_IGN) sigaction(SIGHUP, &old_hangup, nullptr);  // as nohup asks
  install(SIGUSR1, on_save, old_user);
}

SignalRequests::~SignalRequests() {
  sigaction(SIGINT, &old_interrupt, nullptr);
  sigaction(SIGTERM, &old_terminate, nullptr);
  sigaction(SIGHUP, &old_hangup, nullptr);
  sigaction(SIGUSR1, &old_user, nullptr);
}

int SignalRequests::stop_signal() const { return stop_signal_seen; }

bool SignalRequests::take_save_request() {
  if (save_requested == 0) return false;
  save_requested = 0;
  return true;
}

}  // namespace tessera
