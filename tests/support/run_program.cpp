#include "support/run_program.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <stdexcept>
#include <thread>

extern char** environ;

namespace tessera::testing {
namespace {

using Clock = std::chrono::steady_clock;

[[noreturn]] void fail(const std::string& what) {
  throw std::runtime_error(what + ": " + std::strerror(errno));
}

struct Pipe {
  int ends[2] = {-1, -1};
  Pipe() {
    if (pipe2(ends, O_CLOEXEC) != 0) fail("pipe");
  }
  ~Pipe() {
    close_end(0);
    close_end(1);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  void close_end(int end) {
    if (ends[end] >= 0) close(ends[end]);
    ends[end] = -1;
  }
};

std::vector<std::string> child_environment(const RunOptions& options) {
  std::map<std::string, std::string> variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const std::size_t equals = text.find('=');
    if (equals != std::string::npos) variables[text.substr(0, equals)] = text.substr(equals + 1);
  }
  variables.erase("GTEST_OUTPUT");  // ours, not the child's
  for (const std::string& name : options.unset) variables.erase(name);
  for (const auto& [name, value] : options.environment) variables[name] = value;
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

void limit(int resource, std::optional<std::size_t> bytes) {
  if (!bytes) return;
  const rlimit value{*bytes, *bytes};
  setrlimit(static_cast<__rlimit_resource>(resource), &value);
}

// In the child, between fork and exec: system calls only.
[[noreturn]] void become(const RunOptions& options, Pipe& in, Pipe& out, Pipe& err,
                         char* const* arguments, char* const* variables) {
  setpgid(0, 0);
  dup2(in.ends[0], 0);
  dup2(out.ends[1], 1);
  dup2(err.ends[1], 2);
  if (!options.working_folder.empty() && chdir(options.working_folder.c_str()) != 0) _exit(126);
  limit(RLIMIT_AS, options.address_space_bytes);
  limit(RLIMIT_FSIZE, options.file_size_bytes);
  signal(SIGPIPE, SIG_DFL);
  if (options.file_size_bytes) signal(SIGXFSZ, SIG_IGN);
  execve(arguments[0], arguments, variables);
  _exit(127);
}

}  // namespace

struct BackgroundProgram::State {
  Clock::time_point start = Clock::now(), deadline, end;
  Pipe in, out, err;
  pid_t pid = -1;
  std::thread reader;
  mutable std::mutex mutex;
  std::condition_variable changed;
  std::string out_text, err_text, input;
  bool streams_ended = false, timed_out = false;
  bool reaped = false;
  int status = 0;

  void launch(const RunOptions& options);
  void collect();  // the reader's thread: feeds stdin, reads both streams, kills at the deadline
  bool feed();
  void take(int descriptor, std::string& into, bool& open);
  bool end_seen();
  void reap();
};

void BackgroundProgram::State::launch(const RunOptions& options) {
  std::vector<std::string> words{options.program.string()};
  words.insert(words.end(), options.arguments.begin(), options.arguments.end());
  std::vector<std::string> variables = child_environment(options);
  const std::vector<char*> argv = pointers(words);
  const std::vector<char*> envp = pointers(variables);
  deadline = start + options.timeout;
  input = options.standard_input;
  pid = fork();
  if (pid < 0) fail("fork");
  if (pid == 0) become(options, in, out, err, argv.data(), envp.data());
  setpgid(pid, pid);  // both sides do, so that neither is too late
  in.close_end(0);
  out.close_end(1);
  err.close_end(1);
  for (const int descriptor : {in.ends[1], out.ends[0], err.ends[0]})
    fcntl(descriptor, F_SETFL, O_NONBLOCK);
  reader = std::thread([this] { collect(); });
}

// Writes what the pipe takes; true when nothing is left to write.
bool BackgroundProgram::State::feed() {
  while (!input.empty()) {
    const ssize_t count = write(in.ends[1], input.data(), input.size());
    if (count < 0) return errno != EAGAIN && errno != EINTR;
    input.erase(0, static_cast<std::size_t>(count));
  }
  return true;
}

void BackgroundProgram::State::take(int descriptor, std::string& into, bool& open) {
  char buffer[65536];
  const ssize_t count = read(descriptor, buffer, sizeof buffer);
  if (count > 0) {
    const std::lock_guard lock(mutex);
    into.append(buffer, static_cast<std::size_t>(count));
    changed.notify_all();
  } else if (count == 0 || (errno != EAGAIN && errno != EINTR)) {
    open = false;
  }
}

// Whether the process itself has ended, its status left to be fetched.
bool BackgroundProgram::State::end_seen() {
  siginfo_t info{};
  return waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
         info.si_pid == pid;
}

void BackgroundProgram::State::collect() {
  signal(SIGPIPE, SIG_IGN);
  bool in_open = true, out_open = true, err_open = true;
  while (out_open || err_open) {
    pollfd polled[3] = {{out_open ? out.ends[0] : -1, POLLIN, 0},
                        {err_open ? err.ends[0] : -1, POLLIN, 0},
                        {in_open ? in.ends[1] : -1, POLLOUT, 0}};
    const int ready = poll(polled, 3, 20);
    if (polled[0].revents != 0) take(out.ends[0], out_text, out_open);
    if (polled[1].revents != 0) take(err.ends[0], err_text, err_open);
    if (in_open && polled[2].revents != 0 && feed()) {
      in.close_end(1);
      in_open = false;
    }
    // A process left behind by ours may hold the streams open: do not wait for it.
    if (ready == 0 && end_seen()) break;
    if (Clock::now() > deadline) {
      const std::lock_guard lock(mutex);
      timed_out = true;
      kill(-pid, SIGKILL);
      deadline = Clock::time_point::max();
    }
  }
  // Both streams closed by a process that still runs: the time limit holds for it too.
  while (!end_seen()) {
    if (Clock::now() > deadline) {
      const std::lock_guard lock(mutex);
      timed_out = true;
      kill(-pid, SIGKILL);
      deadline = Clock::time_point::max();
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  const std::lock_guard lock(mutex);
  end = Clock::now();
  streams_ended = true;
  changed.notify_all();
}

void BackgroundProgram::State::reap() {
  if (reader.joinable()) reader.join();
  if (reaped) return;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  kill(-pid, SIGKILL);  // what it started and left behind
  reaped = true;
}

BackgroundProgram::BackgroundProgram(const RunOptions& options)
    : state_(std::make_unique<State>()) {
  state_->launch(options);
}

BackgroundProgram::~BackgroundProgram() {
  if (!state_->reaped) kill(-state_->pid, SIGKILL);
  state_->reap();
}

int BackgroundProgram::process_id() const { return state_->pid; }

void BackgroundProgram::send_signal(int signal) {
  if (!state_->reaped) kill(state_->pid, signal);
}

std::string BackgroundProgram::out() const {
  const std::lock_guard lock(state_->mutex);
  return state_->out_text;
}

std::string BackgroundProgram::err() const {
  const std::lock_guard lock(state_->mutex);
  return state_->err_text;
}

bool BackgroundProgram::wait_for_output(const std::string& text,
                                        std::chrono::milliseconds timeout) {
  std::unique_lock lock(state_->mutex);
  const auto seen = [&] {
    return state_->out_text.find(text) != std::string::npos ||
           state_->err_text.find(text) != std::string::npos;
  };
  state_->changed.wait_for(lock, timeout, [&] { return seen() || state_->streams_ended; });
  return seen();
}

RunResult BackgroundProgram::wait() {
  state_->reap();
  RunResult result;
  result.signal = WIFSIGNALED(state_->status) ? WTERMSIG(state_->status) : 0;
  result.exit_code = result.signal != 0 ? 128 + result.signal : WEXITSTATUS(state_->status);
  result.timed_out = state_->timed_out;
  result.out = state_->out_text;
  result.err = state_->err_text;
  result.elapsed =
      std::chrono::duration_cast<std::chrono::milliseconds>(state_->end - state_->start);
  return result;
}

std::string RunResult::describe() const {
  std::string text = "exit code " + std::to_string(exit_code) + " after " +
                     std::to_string(elapsed.count()) + " ms" + (timed_out ? ", timed out" : "");
  return text + "\n--- stdout\n" + out + "\n--- stderr\n" + err;
}

std::string RunResult::last_error_line() const {
  const std::size_t last = err.find_last_not_of("\n");
  if (last == std::string::npos) return {};
  const std::size_t before = err.rfind('\n', last);
  const std::size_t begin = before == std::string::npos ? 0 : before + 1;
  return err.substr(begin, last + 1 - begin);
}

RunResult run_program(const RunOptions& options) { return BackgroundProgram(options).wait(); }

RunResult run_tessera(std::vector<std::string> arguments) {
  RunOptions options;
  options.arguments = std::move(arguments);
  return run_program(options);
}

std::filesystem::path tessera_program() { return TESSERA_PROGRAM; }

bool engine_is_built() { return TESSERA_ENGINE_BUILT != 0; }

}  // namespace tessera::testing
