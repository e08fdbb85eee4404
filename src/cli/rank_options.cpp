#include "cli/rank_options.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>

#include "base/error.h"
#include "base/machine.h"
#include "base/rank_place.h"
#include "checkpoint/catalog.h"
#include "cli/program.h"
#include "launcher/launcher.h"

namespace tessera::cli {
namespace {

constexpr int kMostRanks = 1024;
constexpr double kTimeToSave_s = 600;  // a second signal ends the ranks at once

// As the kernel's drivers show them, as far as the user lets them be seen.
int visible_gpus() {
  int count = static_cast<int>(machine_facts().gpus.size());
  if (const char* visible = std::getenv("CUDA_VISIBLE_DEVICES")) {
    const std::string list = visible;
    const auto named =
        list.empty() || list == "-1" ? 0 : 1 + std::count(list.begin(), list.end(), ',');
    count = std::min(count, static_cast<int>(named));
  }
  return count;
}

}  // namespace

int count_ranks(std::string_view option, const std::string& text) {
  const int processors = machine_facts().usable_processors();
  const int gpus = visible_gpus();
  if (text == "auto") return gpus > 0 ? gpus : processors;
  if (text == "cpu") return processors;
  if (text == "gpu" && gpus > 0) return gpus;
  if (text == "gpu") {
    throw Error(ErrorKind::kUsage, "--" + std::string(option) + "=gpu: this machine shows no GPU",
                {}, "`tessera doctor` shows what it has; or give a number.");
  }
  int count = 0;
  const char* end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, count);
  if (result.ec == std::errc() && result.ptr == end && count >= 1 && count <= kMostRanks)
    return count;
  throw Error(ErrorKind::kUsage, "--" + std::string(option) +
                                     " must be a number from 1 to 1024, auto, cpu or gpu, not '" +
                                     text + "'");
}

int launch_and_report(const LaunchOptions& options, LogLevel level) {
  Log log(level);
  const LaunchResult result = launch(options, log);
  if (!result.summary.empty()) std::fwrite(result.summary.data(), 1, result.summary.size(), stderr);
  if (!result.cause.empty()) print_error(result.cause);
  return result.exit_code;
}

OptionGroup ranks_options() {
  return {"Ranks",
          {{.name = "nproc",
            .value = "N",
            .help = "Train on N processes of this machine; auto: as many as GPUs, else as "
                    "processors.",
            .preset = "1"},
           {.name = "max-restarts",
            .value = "N",
            .help = "How often the ranks are started again after a failure, from the newest "
                    "checkpoint.",
            .preset = "0"}}};
}

int ranks_asked(const Arguments& arguments) {
  for (const char* option : {"nproc", "max-restarts"}) {
    if (!arguments.has(option)) continue;
    const RankPlace place = rank_place(process_environment());
    if (std::getenv("RANK") == nullptr && place.alone()) continue;
    throw Error(ErrorKind::kUsage,
                "--" + std::string(option) + " starts ranks, and " +
                    std::string(to_string(place.launched_by)) +
                    " has started this process as one of several already",
                {}, "Leave it out here, or unset RANK in the environment.");
  }
  return count_ranks("nproc", arguments.text("nproc"));
}

std::string typed_command_line(const Arguments& arguments) {
  const char* typed = std::getenv("TESSERA_COMMAND_LINE");
  const bool rank = std::getenv("TESSERA_LAUNCHER") != nullptr;
  return typed != nullptr && rank ? typed : arguments.command_line();
}

void go_on_after_restart(TrainRequest& request) {
  const char* launched = std::getenv("TESSERA_LAUNCH_TIME");
  if (launched == nullptr) return;  // torchrun: it does not say when it began
  const auto files = make_posix_file_system();
  const Path folder = Path(request.config.run.dir) / "checkpoints";
  for (const CheckpointEntry& entry : list_checkpoints(*files, folder)) {
    struct stat status;
    if (::stat(entry.path.c_str(), &status) != 0 || status.st_mtime < std::atoll(launched))
      continue;
    request.fresh = false;
    request.resume_from.reset();
    return;
  }
}

int train_on_ranks(const Arguments& arguments, int ranks) {
  LaunchOptions options;
  options.command = {program_path().string(), "train"};
  for (const OptionGroup& group : arguments.command().groups) {
    for (const Option& option : group.options) {
      if (option.name == "nproc" || option.name == "max-restarts") continue;
      for (const std::string& value : arguments.all(option.name)) {
        const std::string word = "--" + std::string(option.name);
        options.command.push_back(option.value.empty() ? word : word + "=" + value);
      }
    }
  }
  options.command.emplace_back("--");
  options.command.insert(options.command.end(), arguments.operands().begin(),
                         arguments.operands().end());
  // The closing hints of rank 0 show what the user typed.
  options.environment["TESSERA_COMMAND_LINE"] = arguments.command_line();
  options.local_ranks = ranks;
  options.max_restarts = static_cast<int>(arguments.integer("max-restarts", 0, 1'000'000));
  options.style = OutputStyle::kFirstRank;
  options.shutdown_timeout_s = kTimeToSave_s;
  options.signals = {SIGHUP, SIGQUIT};
  return launch_and_report(options, arguments.log_level());
}

}  // namespace tessera::cli
