// Starts the ranks of this node and watches them to the end of the job, restarts included. Owns:
// the agent's whole life. Not: the command line.
#pragma once

#include <string>

#include "base/log.h"
#include "launcher/launch_options.h"

namespace tessera {

struct LaunchResult {
  int exit_code = 0;    // of the first failed rank, 5 for one ended by a signal; 130/143
  std::string summary;  // all failures, the cause last; empty where nothing failed
  std::string cause;    // one line for after "error: "; may be empty
};

// Blocks. Call it before the process has other threads. Error: what keeps ranks from being started
// (kUsage, kComm, kIo, kResource).
LaunchResult launch(const LaunchOptions& options, Log& log);

}  // namespace tessera
