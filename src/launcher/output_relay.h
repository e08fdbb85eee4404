// Output of ranks that passes through the agent. Owns: a thread that reads pipes and writes whole
// lines, each with its rank before it, and raw bytes to log files. Not: which stream goes where.
#pragma once

#include <memory>
#include <string>

#include "base/file_system.h"

namespace tessera {

class OutputRelay {
 public:
  OutputRelay();  // Error{kResource}
  ~OutputRelay();
  OutputRelay(const OutputRelay&) = delete;
  OutputRelay& operator=(const OutputRelay&) = delete;

  struct Target {
    int console = -1;    // descriptor that lines are written to, not owned; -1: none
    std::string prefix;  // of each line there
    Path file;           // gets every byte as it comes, appended; empty: none
  };
  // A pipe's end to write to, for a child's stream; the caller closes it after the fork. Error{kIo}
  // where the file cannot be opened.
  int add(const Target& target);

  // Everything that the pipes hold now has been written when this returns, and the thread ends. A
  // pipe that a process left behind still holds open is not waited for.
  void finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tessera
