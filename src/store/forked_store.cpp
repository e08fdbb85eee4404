// The store in a process of its own: fork_store_server of store_server.h.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <exception>
#include <string>
#include <utility>

#include "base/error.h"
#include "store/socket.h"
#include "store/store_server.h"
#include "store/store_service.h"

namespace tessera {
namespace {

using std::chrono::steady_clock;

// How often the child looks whether its parent lives where the kernel cannot tell it (before 5.3).
constexpr int kLookMs = 200;
constexpr double kLongestLingerSeconds = 7 * 24 * 3600.0;

// Tells when the parent ends, however it ends. A pipe held by the parent would do as well, but any
// other child of the parent would hold it too.
class Parent {
 public:
  explicit Parent(pid_t id)
      : id_(id), handle_(static_cast<int>(::syscall(SYS_pidfd_open, id, 0))) {}

  int handle() const { return handle_.get(); }
  bool can_be_watched() const { return static_cast<bool>(handle_); }
  // An orphan has another parent, so this holds also for a number that was given out again.
  bool lives() const { return ::getppid() == id_; }
  void forget() { handle_.close(); }

 private:
  const pid_t id_;
  Socket handle_;
};

void set_action(int number, void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  sigemptyset(&action.sa_mask);
  ::sigaction(number, &action, nullptr);
}

// The caller's handlers would act on the caller's state, of which this process has a copy only.
void set_actions(void (*handler)(int)) {
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2})
    set_action(number, handler);
}

// Keeps stderr, and `first` and `second` as 3 and 4: what else the caller has open (files, pipes,
// sockets) must not stay open for as long as the store lives.
void keep_only(Socket& first, Socket& second) {
  // By way of numbers above: each may be where the other is to go.
  const int high_first = ::fcntl(first.release(), F_DUPFD_CLOEXEC, 10);
  const int high_second = ::fcntl(second.release(), F_DUPFD_CLOEXEC, 10);
  first = Socket(::dup3(high_first, 3, O_CLOEXEC));
  second = Socket(::dup3(high_second, 4, O_CLOEXEC));
  if (::close_range(5, ~0u, 0) != 0) {
    const long most = ::sysconf(_SC_OPEN_MAX);
    for (int i = 5; i < std::clamp<long>(most, 1024, 1 << 20); ++i) ::close(i);
  }
  const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  if (null < 0) return;
  ::dup2(null, STDIN_FILENO);
  ::dup2(null, STDOUT_FILENO);
  if (null > STDERR_FILENO) ::close(null);
}

// A connection each for more ranks than the usual 1024 files allow.
void allow_files(std::size_t connections) {
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0) return;
  files.rlim_cur =
      std::max<rlim_t>(files.rlim_cur, std::min<rlim_t>(files.rlim_max, connections + 16));
  (void)::setrlimit(RLIMIT_NOFILE, &files);  // without it the store serves as many as it may
}

void serve_until_alone(StoreService& service, Parent& parent, double linger_seconds) {
  if (parent.can_be_watched()) service.wake_by(parent.handle());
  while (parent.lives()) service.serve_once(parent.can_be_watched() ? -1 : kLookMs);
  parent.forget();
  set_actions(SIG_DFL);  // from now on whoever wants may end it
  const auto linger =
      std::chrono::duration<double>(std::clamp(linger_seconds, 0.0, kLongestLingerSeconds));
  const Deadline end = deadline_after(std::chrono::ceil<std::chrono::milliseconds>(linger));
  while (service.clients() > 0 && steady_clock::now() < end)
    service.serve_once(milliseconds_until(end));
}

// The whole life of the child. One byte into `ready` says that it is as promised.
int serve(Socket listener, Socket ready, const StoreLimits& limits, pid_t parent_id,
          double linger_seconds) {
  try {
    ::setpgid(0, 0);
    ::prctl(PR_SET_NAME, "tessera-store");
    keep_only(listener, ready);
    allow_files(limits.connections);
    StoreService service(std::move(listener), limits);
    Parent parent(parent_id);
    const ssize_t written = ::write(ready.get(), "", 1);
    (void)written;
    ready.close();
    serve_until_alone(service, parent, linger_seconds);
    return 0;
  } catch (const std::exception& error) {
    const std::string text = std::string("error: ") + error.what() + "\n";
    const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
    (void)written;
    return 1;
  }
}

}  // namespace

int fork_store_server(const StoreServerOptions& options, double linger_seconds) {
  const auto fail = [](int error) {
    throw Error(
        ErrorKind::kResource,
        std::string("the process of the job's store cannot be started: ") + std::strerror(error),
        {}, "Raise the limits of processes and files (ulimit -u, ulimit -n).");
  };
  Socket listener = listen_on(options.address, options.port);
  const int port = local_port(listener);
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) fail(errno);
  Socket ready(ends[0]), tell_ready(ends[1]);
  const pid_t parent_id = ::getpid();
  // No signal may meet the child while it still has its parent's handlers and process group.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const pid_t child = ::fork();
  const int error = errno;
  if (child == 0) {
    set_actions(SIG_IGN);
    set_action(SIGPIPE, SIG_IGN);
    set_action(SIGCHLD, SIG_DFL);
    sigset_t none;
    sigemptyset(&none);
    pthread_sigmask(SIG_SETMASK, &none, nullptr);
    // Not exit(): what the caller has registered to be done at its end is not this process's.
    ::_exit(serve(std::move(listener), std::move(tell_ready), options.limits, parent_id,
                  linger_seconds));
  }
  tell_ready.close();
  char byte = 0;
  const bool is_ready = child > 0 && ::read(ready.get(), &byte, 1) == 1;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (child < 0) fail(error);
  if (!is_ready) fail(ECHILD);
  return port;
}

}  // namespace tessera
