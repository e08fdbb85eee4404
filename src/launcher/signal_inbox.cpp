#include "launcher/signal_inbox.h"

#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "base/error.h"

namespace tessera {

SignalInbox::SignalInbox(const std::vector<int>& signals) {
  sigset_t mask;
  sigemptyset(&mask);
  sigaddset(&mask, SIGCHLD);
  for (const int number : signals) {
    struct sigaction present;
    if (sigaction(number, nullptr, &present) == 0 && present.sa_handler == SIG_IGN) {
      if (number == SIGHUP) continue;
      // Shells start background jobs of scripts so; `kill -INT` shall reach them all the same, as
      // it reaches a training without a launcher. An ignored signal never becomes readable.
      struct sigaction standard;
      memset(&standard, 0, sizeof standard);
      standard.sa_handler = SIG_DFL;
      sigaction(number, &standard, nullptr);
      were_ignored_.push_back(number);
    }
    sigaddset(&mask, number);
  }
  pthread_sigmask(SIG_BLOCK, &mask, &original_);
  struct sigaction ignore;
  memset(&ignore, 0, sizeof ignore);
  ignore.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &ignore, &old_pipe_);
  descriptor_ = signalfd(-1, &mask, SFD_NONBLOCK | SFD_CLOEXEC);
  if (descriptor_ < 0) {
    const int code = errno;
    pthread_sigmask(SIG_SETMASK, &original_, nullptr);
    throw Error(ErrorKind::kResource, std::string("signals cannot be received: ") + strerror(code));
  }
}

SignalInbox::~SignalInbox() {
  take();  // a signal that came too late must not end the process when the mask is lifted
  ::close(descriptor_);
  sigaction(SIGPIPE, &old_pipe_, nullptr);
  for (const int number : were_ignored_) signal(number, SIG_IGN);
  pthread_sigmask(SIG_SETMASK, &original_, nullptr);
}

std::vector<int> SignalInbox::take() {
  std::vector<int> numbers;
  signalfd_siginfo info;
  while (::read(descriptor_, &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
    if (info.ssi_signo != SIGCHLD) numbers.push_back(static_cast<int>(info.ssi_signo));
  }
  return numbers;
}

}  // namespace tessera
