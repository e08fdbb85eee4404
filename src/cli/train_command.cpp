#include <signal.h>
#include <unistd.h>

#include <cstdio>

#include "base/error.h"
#include "base/rank_place.h"
#include "cli/command.h"
#include "cli/engine_loader.h"
#include "cli/own_place.h"
#include "cli/program.h"
#include "cli/rank_options.h"
#include "config/load.h"
#include "store/store_server.h"
#include "tracking/json_lines_sink.h"

namespace tessera::cli {
namespace {

// A reader of stdout that goes away (`| head`) asks a run to stop, as SIGTERM does: it saves, and
// ends without a word. Before the engine listens, SIGTERM ends the process at once.
void on_broken_pipe(int) {
  signal(SIGPIPE, SIG_IGN);
  raise(SIGTERM);
}

// With --json, stdout hears of every failure as of every other end.
ResolvedConfig load_or_announce(const ConfigSource& source, bool json) {
  try {
    return load_config(source);
  } catch (const Error& error) {
    if (json) {
      EndEvent end;
      end.status = EndStatus::kFailed;
      end.error = error.what();
      end.exit_code = exit_code(error.kind());
      std::puts(to_json_line(end).c_str());
    }
    throw;
  }
}

// On a thread beside the one that hangs: no destructor may run, for the hanging one uses
// everything.
void end_process(const Error& error) {
  print_error(error.what());
  std::fflush(nullptr);
  _exit(exit_code(error.kind()));
}

// Trains as one of several ranks: messages say of which, for all write to the same terminal.
int train_as_rank(const EngineApi& engine, const TrainRequest& request) {
  try {
    return engine.train(request);
  } catch (const Error& error) {
    if (request.place.alone() || error.kind() == ErrorKind::kComm) throw;
    throw Error(error.kind(), "rank " + std::to_string(request.place.rank) + ": " + error.reason(),
                error.where(), error.remedy());
  }
}

int train(const Arguments& arguments) {
  // Nothing can be saved yet, and by default this signal ends the process. Not in the launcher.
  signal(SIGUSR1, SIG_IGN);
  ConfigSource source;
  source.config = arguments.operands().front();
  source.overrides.assign(arguments.operands().begin() + 1, arguments.operands().end());
  if (const auto device = arguments.maybe("device")) {
    source.overrides.push_back("run.device=" + *device);
  }
  if (const auto folder = arguments.maybe("config-dir")) source.config_dir = *folder;
  source.shipped_dir = shipped_config_dir();
  if (arguments.has("fresh") && arguments.has("resume-from")) {
    throw Error(ErrorKind::kUsage, "--fresh and --resume-from contradict each other", {},
                "--resume-from begins a new run by itself; choose its folder with run.name.");
  }
  if (arguments.has("cfg") && arguments.has("json")) {
    throw Error(ErrorKind::kUsage, "--cfg prints the settings as YAML, not as JSON", {},
                "Leave one of --cfg and --json out.");
  }
  const int ranks = ranks_asked(arguments);
  const ResolvedConfig resolved = load_or_announce(source, arguments.has("json"));
  TrainRequest request;
  request.config = resolved.config;
  request.config_yaml = resolved.yaml();
  if (arguments.has("cfg")) {
    std::fputs(request.config_yaml.c_str(), stdout);
    return 0;
  }
  request.dry_run = arguments.has("dry-run");
  request.plan_world_size = ranks;
  if (!request.dry_run && (ranks > 1 || arguments.has("max-restarts"))) {
    return train_on_ranks(arguments, ranks);
  }
  request.command_line = typed_command_line(arguments);
  request.json = arguments.has("json");
  request.fresh = arguments.has("fresh");
  if (const auto checkpoint = arguments.maybe("resume-from")) request.resume_from = *checkpoint;
  request.log_level = arguments.log_level();
  request.place = own_place();
  request.end_process = end_process;
  const RankPlace& place = request.place;
  if (place.restart > 0) go_on_after_restart(request);
  if (!place.alone() && place.rank == 0 && !place.store_is_hosted) {
    // Before the engine starts threads.
    constexpr double kLingerSeconds = 20;
    fork_store_server({.address = place.store_host, .port = place.store_port}, kLingerSeconds);
  }
  const EngineApi& engine = load_engine();
  signal(SIGPIPE, on_broken_pipe);
  return train_as_rank(engine, request);
}

}  // namespace

const Command& train_command() {
  static const Command command{
      .name = "train",
      .summary = "Train a model as a config describes",
      .operands = "CONFIG [a.b=c …]",
      .description =
          "CONFIG is a YAML file, or the name of a shipped config (see `tessera config ls`). "
          "Arguments after it override single settings: a.b=c sets one, ~a.b takes the default, "
          "model=gpt2-xl takes a group from a file. All settings: docs/config.md.\n\n"
          "The same command again resumes the run from its newest checkpoint. Ctrl-C saves at the "
          "end of the step and stops; a second one stops at once.",
      .groups =
          {{"Run",
            {{.name = "fresh", .help = "Start over; an existing run in the folder is moved aside."},
             {.name = "resume-from",
              .value = "DIR",
              .help = "Begin a new run from this checkpoint of another."},
             {.name = "device",
              .value = "DEVICE",
              .help = "auto, cpu, cuda or cuda:N; short for run.device=DEVICE."}}},
           ranks_options(),
           {"Config",
            {{.name = "config-dir",
              .value = "DIR",
              .help = "Look for configs and groups here first."},
             {.name = "cfg",
              .help = "Print the whole config, with the origin of each value, and stop."},
             {.name = "dry-run",
              .help = "Build everything, print the plan (parameters, memory, tokens a step) "
                      "and stop."}}},
           {"Output",
            {{.name = "json", .help = "JSON lines on stdout: start, step, eval, checkpoint, end."},
             logging_options().options[0],
             logging_options().options[1]}}},
      .environment = {{"TESSERA_DATA", "Folder of the data that shipped configs name."},
                      {"TESSERA_CACHE", "Folder of prepared data [~/.cache/tessera]."},
                      {"NO_COLOR", "Plain text without colours."}},
      .examples = {{"tessera train quickstart", "A small model on the built-in text."},
                   {"tessera train quickstart optim.lr=1e-3 train.max_steps=50 --json",
                    "Two settings changed; progress as JSON lines."},
                   {"tessera train quickstart --nproc 2", "On two processes of this machine."},
                   {"tessera train quickstart model.n_layer=8 --dry-run",
                    "What would be trained, and how much memory it takes."}},
      .min_operands = 1,
      .max_operands = -1,
      .completes = Operand::kConfig,
      .run = train};
  return command;
}

}  // namespace tessera::cli
