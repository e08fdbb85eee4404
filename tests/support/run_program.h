// Runs a program the way a user does, for tests that know Tessera only by its command line and its
// files. Owns: processes, their streams, time limits. Not: what the output means (json_lines.h),
// folders (run_folder.h).
#pragma once

#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tessera::testing {

// The built program, whole path.
std::filesystem::path tessera_program();

// Whether this build has the engine: without it, a test of train, evaluate or generate skips and
// says so.
bool engine_is_built();

struct RunOptions {
  std::vector<std::string> arguments;
  std::map<std::string, std::string> environment;  // added to the test's own
  std::vector<std::string> unset;                  // taken out of it
  std::filesystem::path working_folder;            // empty: the test's own
  std::string standard_input;                      // then end of file
  std::chrono::milliseconds timeout{120'000};      // the process is then killed
  std::optional<std::size_t> address_space_bytes;  // RLIMIT_AS
  std::optional<std::size_t>
      file_size_bytes;  // RLIMIT_FSIZE; SIGXFSZ is ignored, so that writes fail
  std::filesystem::path program = tessera_program();
};

struct RunResult {
  int exit_code = -1;  // 128 + number for one ended by a signal, as a shell says it
  int signal = 0;      // the signal that ended the process, or 0
  bool timed_out = false;
  std::string out, err;
  std::chrono::milliseconds elapsed{0};
  // Everything in one text, for failure messages: EXPECT_EQ(result.exit_code, 0) <<
  // result.describe();
  std::string describe() const;
  std::string last_error_line() const;  // the last line of err that is not empty
};

// Runs to the end. Throws std::runtime_error only if no process can be made.
RunResult run_program(const RunOptions& options);

// The same for the plain case.
RunResult run_tessera(std::vector<std::string> arguments);

// A program in the background. Its output is collected by a thread of the object, so it never
// blocks on a full pipe. The destructor kills it if it still runs, with the processes that it
// started (it leads its own group).
class BackgroundProgram {
 public:
  explicit BackgroundProgram(const RunOptions& options);
  ~BackgroundProgram();
  BackgroundProgram(const BackgroundProgram&) = delete;
  BackgroundProgram& operator=(const BackgroundProgram&) = delete;

  int process_id() const;
  void send_signal(int signal);  // to the process; nothing if it has ended
  std::string out() const;       // so far
  std::string err() const;
  // Waits until `text` was printed on stdout or stderr. False when the process ended or the time
  // passed before.
  bool wait_for_output(const std::string& text, std::chrono::milliseconds timeout);
  // Waits for the end; kills at the time limit of the options, counted from the start.
  RunResult wait();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tessera::testing
