#include "launcher/group_guardian.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>

#include "base/error.h"

namespace tessera {
namespace {

constexpr int kMostGroups = 4096;

// Runs in the child: system calls only, for it may have been forked from a large program.
[[noreturn]] void guard(int pipe) {
  setpgid(0, 0);  // a Ctrl-C of the terminal does not concern it
  prctl(PR_SET_NAME, "tessera-guard");
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGPIPE})
    signal(number, SIG_IGN);
  // It must not hold the agent's streams open: somebody may wait for their end.
  dup2(pipe, 0);
  close_range(1, ~0U, 0);
  pid_t groups[kMostGroups];
  int count = 0;
  pid_t message = 0;
  for (;;) {
    const ssize_t got = read(0, &message, sizeof message);
    if (got < 0 && errno == EINTR) continue;
    if (got != static_cast<ssize_t>(sizeof message)) break;  // the agent is gone
    if (message > 0 && count < kMostGroups) groups[count++] = message;
    for (int i = 0; message < 0 && i < count; ++i)
      if (groups[i] == -message) groups[i--] = groups[--count];
  }
  for (int i = 0; i < count; ++i) kill(-groups[i], SIGKILL);
  ::_exit(0);
}

void send(int pipe, pid_t message) {
  // Shorter than PIPE_BUF, so written whole. Where the guardian was killed there is nobody to tell.
  while (write(pipe, &message, sizeof message) < 0 && errno == EINTR) {
  }
}

}  // namespace

GroupGuardian::GroupGuardian() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    throw Error(ErrorKind::kResource, std::string("no pipe can be made: ") + strerror(errno));
  }
  process_ = fork();
  if (process_ == 0) guard(ends[0]);
  close(ends[0]);
  pipe_ = ends[1];
  if (process_ < 0) {
    const int code = errno;
    close(pipe_);
    throw Error(ErrorKind::kResource, std::string("no process can be started: ") + strerror(code));
  }
}

GroupGuardian::~GroupGuardian() {
  close(pipe_);
  while (waitpid(process_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void GroupGuardian::watch(pid_t group) { send(pipe_, group); }
void GroupGuardian::forget(pid_t group) { send(pipe_, -group); }

}  // namespace tessera
