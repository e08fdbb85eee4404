#include "launcher/rank_process.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>

#include "base/error.h"

extern char** environ;

namespace tessera {
namespace {

std::vector<std::string> merged_environment(const std::map<std::string, std::string>& added) {
  std::map<std::string, std::string> variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const std::size_t equals = text.find('=');
    if (equals != std::string::npos) variables[text.substr(0, equals)] = text.substr(equals + 1);
  }
  for (const auto& [name, value] : added) variables[name] = value;
  std::vector<std::string> result;
  for (const auto& [name, value] : variables) result.push_back(name + "=" + value);
  return result;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (std::string& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

// In the child, between fork and exec: system calls only.
[[noreturn]] void become(const RankSpec& spec, const SignalInbox& inbox, pid_t agent, int report,
                         char* const* arguments, char* const* variables) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != agent) ::_exit(127);  // it died before the line above
  if (!spec.reads_input) {
    const int nothing = open("/dev/null", O_RDONLY);
    if (nothing >= 0) dup2(nothing, 0);
  }
  // Copies above 2 first, so that neither overwrites the other.
  const int out = fcntl(spec.standard_output, F_DUPFD_CLOEXEC, 3);
  const int err = fcntl(spec.standard_error, F_DUPFD_CLOEXEC, 3);
  dup2(out, 1);
  dup2(err, 2);
  if (spec.processors) sched_setaffinity(0, sizeof *spec.processors, &*spec.processors);
  ::signal(SIGPIPE, SIG_DFL);
  sigprocmask(SIG_SETMASK, &inbox.original_mask(), nullptr);
  execve(arguments[0], arguments, variables);
  const int code = errno;
  const ssize_t ignored = write(report, &code, sizeof code);
  (void)ignored;
  ::_exit(127);
}

}  // namespace

double seconds_since_epoch() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

RankProcess::RankProcess(const RankSpec& spec, const SignalInbox& inbox, GroupGuardian& guardian)
    : guardian_(guardian),
      rank_(spec.rank),
      local_rank_(spec.local_rank),
      error_file_(spec.error_file) {
  std::vector<std::string> words = spec.command;
  std::vector<std::string> variables = merged_environment(spec.environment);
  const std::vector<char*> argv = pointers(words), envp = pointers(variables);
  int report[2];
  if (pipe2(report, O_CLOEXEC) != 0) {
    throw Error(ErrorKind::kResource, std::string("no pipe can be made: ") + strerror(errno));
  }
  const pid_t agent = getpid();
  process_ = fork();
  if (process_ == 0) become(spec, inbox, agent, report[1], argv.data(), envp.data());
  const int fork_error = errno;
  close(report[1]);
  int code = 0;
  if (process_ > 0) {
    setpgid(process_, process_);  // both sides do, so that neither is too late
    guardian_.watch(process_);
    ssize_t got = 0;
    while ((got = read(report[0], &code, sizeof code)) < 0 && errno == EINTR) {
    }
    if (got != static_cast<ssize_t>(sizeof code)) code = 0;
  }
  close(report[0]);
  if (process_ < 0) {
    throw Error(ErrorKind::kResource,
                std::string("no process can be started: ") + strerror(fork_error));
  }
  if (code != 0) {
    guardian_.forget(process_);
    while (waitpid(process_, nullptr, 0) < 0 && errno == EINTR) {
    }
    throw Error(ErrorKind::kUsage,
                "the command '" + spec.command[0] + "' cannot be executed: " + strerror(code), {},
                code == ENOEXEC ? "A script needs a first line such as #!/bin/sh." : "");
  }
}

RankProcess::~RankProcess() {
  if (ended_) return;
  kill(-process_, SIGKILL);
  guardian_.forget(process_);
  while (waitpid(process_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void RankProcess::signal(int number) {
  if (!ended_) kill(-process_, number);
}

bool RankProcess::poll_end() {
  if (ended_) return false;
  siginfo_t info{};
  if (waitid(P_PID, static_cast<id_t>(process_), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
      info.si_pid != process_)
    return false;
  ended_ = true;
  end_time_ = seconds_since_epoch();
  if (info.si_code == CLD_EXITED) {
    exit_code_ = info.si_status;
  } else {
    end_signal_ = info.si_status;
  }
  // What a failed rank has left behind ends with it; before the rank is reaped, for its number may
  // then be used again.
  if (!good()) kill(-process_, SIGKILL);
  guardian_.forget(process_);
  while (waitpid(process_, nullptr, 0) < 0 && errno == EINTR) {
  }
  return true;
}

void RankProcess::give_up() {
  ended_ = true;
  end_signal_ = SIGKILL;
  end_time_ = seconds_since_epoch();
}

}  // namespace tessera
