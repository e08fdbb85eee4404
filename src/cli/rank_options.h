// What `launch` and `train --nproc` share. Owns: how many ranks a machine is worth, and what the
// user sees of a launch that has ended.
#pragma once

#include <string>
#include <string_view>

#include "cli/command.h"
#include "launcher/launch_options.h"
#include "train/engine_api.h"

namespace tessera::cli {

// N, auto (as many as GPUs, else as processors), cpu or gpu. Error{kUsage} that names `option`.
int count_ranks(std::string_view option, const std::string& text);

// Launches, prints the closing summary; returns the exit code.
int launch_and_report(const LaunchOptions& options, LogLevel level);

// Of `train`: --nproc and --max-restarts.
OptionGroup ranks_options();
// What --nproc asks for; 1 where it is not given. Error{kUsage}: inside a launcher, which has
// started this process as one of its ranks.
int ranks_asked(const Arguments& arguments);
// The command line for closing hints: of a rank, that of its launcher.
std::string typed_command_line(const Arguments& arguments);

// A rank that its launcher has started again goes on with the run that the first start has begun:
// --fresh and --resume-from have done their work if there is a checkpoint since then.
void go_on_after_restart(TrainRequest& request);

// `train --nproc N`: this program's own ranks on this machine, with the words of `arguments` but
// those two. The config has been checked before.
int train_on_ranks(const Arguments& arguments, int ranks);

}  // namespace tessera::cli
