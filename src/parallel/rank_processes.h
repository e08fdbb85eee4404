// Ranks as forked processes, for tests of transports. Owns: the store they meet at, what each said,
// and how it ended. Only for programs in which ATen was not called before the fork.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "parallel/transports.h"
#include "store/store_server.h"

namespace tessera::testing {

// Ends the process at once, as only test programs may: theirs to define, by _exit.
[[noreturn]] void end_process(int code);

struct RankEnd {
  int exit_code =
      -1;  // 0, 5 for Error{kComm}, 2 for Error{kConfig}, 9 for anything else; -1: by signal
  int signal = 0;
  std::string text;  // what the body returned, or the error's text
  std::chrono::milliseconds elapsed{0};
};

// Told to a rank by RankProcesses.
struct RankRun {
  std::string transport;
  GroupPlace place;
};

class RankProcesses {
 public:
  // `body` runs in each rank's process; what it returns becomes RankEnd::text.
  using Body = std::function<std::string(const RankRun&)>;

  RankProcesses(std::string transport, int world_size, const Body& body,
                std::chrono::milliseconds timeout = std::chrono::seconds(30))
      : started_(std::chrono::steady_clock::now()), ends_(static_cast<std::size_t>(world_size)) {
    static std::atomic<int> group = 0;
    RankRun run{.transport = std::move(transport)};
    run.place = {.world_size = world_size,
                 .local_world_size = world_size,
                 .store_host = store_.address(),
                 .store_port = store_.port(),
                 .key_prefix = "group" + std::to_string(++group) + "/",
                 .timeout = timeout};
    for (int rank = 0; rank < world_size; ++rank) {
      run.place.rank = run.place.local_rank = rank;
      start(run, body);
    }
  }
  ~RankProcesses() {
    for (const int process : processes_) {
      if (process <= 0) continue;  // kill(-1) would end every process of the machine
      kill(process, SIGKILL);
      waitpid(process, nullptr, 0);
    }
    for (const int pipe : pipes_) close(pipe);
  }
  RankProcesses(const RankProcesses&) = delete;
  RankProcesses& operator=(const RankProcesses&) = delete;

  void send(int rank, int signal) {
    const int process = processes_.at(static_cast<std::size_t>(rank));
    if (process > 0) kill(process, signal);
  }

  // Waits for one rank, at most 60 s.
  RankEnd& end_of(int rank) {
    const auto index = static_cast<std::size_t>(rank);
    RankEnd& end = ends_[index];
    if (processes_[index] <= 0) return end;
    std::string text;
    char buffer[4096];
    // Through the pipe first: a process that wrote much waits for its reader.
    for (ssize_t n; (n = read(pipes_[index], buffer, sizeof buffer)) > 0;) {
      text.append(buffer, static_cast<std::size_t>(n));
    }
    int status = 0;
    waitpid(processes_[index], &status, 0);
    processes_[index] = -1;
    end.elapsed = std::chrono::duration_cast<std::chrono::milliseconds>(
        std::chrono::steady_clock::now() - started_);
    end.text = text;
    if (WIFEXITED(status)) end.exit_code = WEXITSTATUS(status);
    if (WIFSIGNALED(status)) end.signal = WTERMSIG(status);
    return end;
  }

  // All ranks, each of which must end well.
  std::vector<std::string> texts() {
    std::vector<std::string> all;
    for (std::size_t rank = 0; rank < ends_.size(); ++rank) {
      const RankEnd& end = end_of(static_cast<int>(rank));
      EXPECT_EQ(end.exit_code, 0) << "rank " << rank << ", signal " << end.signal << ": "
                                  << end.text;
      all.push_back(end.text);
    }
    return all;
  }

 private:
  void start(const RankRun& run, const Body& body) {
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    const int process = fork();
    ASSERT_GE(process, 0);
    if (process == 0) {
      close(ends[0]);
      for (const int pipe : pipes_) close(pipe);
      alarm(60);  // whatever happens, no test hangs
      end_process(run_rank(run, body, ends[1]));
    }
    close(ends[1]);
    processes_.push_back(process);  // -1 once it was waited for
    pipes_.push_back(ends[0]);
  }

  static int run_rank(const RankRun& run, const Body& body, int pipe) {
    int code = 0;
    std::string text;
    try {
      text = body(run);
    } catch (const Error& error) {
      code = exit_code(error.kind());
      text = error.what();
    } catch (const std::exception& error) {
      code = 9;
      text = error.what();
    }
    for (std::size_t done = 0; done < text.size();) {
      const ssize_t n = write(pipe, text.data() + done, text.size() - done);
      if (n <= 0) break;
      done += static_cast<std::size_t>(n);
    }
    return code;
  }

  std::chrono::steady_clock::time_point started_;
  StoreServer store_{StoreServerOptions{}};
  std::vector<int> processes_, pipes_;
  std::vector<RankEnd> ends_;
};

}  // namespace tessera::testing
