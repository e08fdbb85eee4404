#include <cmath>
#include <filesystem>
#include <limits>

#include "base/error.h"
#include "base/rank_place.h"
#include "cli/command.h"
#include "cli/program.h"
#include "cli/rank_options.h"
#include "cli/registry.h"
#include "launcher/launch_options.h"
#include "launcher/slurm_nodes.h"

namespace tessera::cli {
namespace {

constexpr int kDefaultPort = 29400;
constexpr std::int64_t kAnyCount = std::numeric_limits<int>::max();

// A subcommand of this program, a Python script or module, or any program.
std::vector<std::string> command_of(const Arguments& arguments) {
  const std::vector<std::string>& words = arguments.operands();
  std::vector<std::string> command = words;
  const bool plain = arguments.has("no-python");
  if (arguments.has("module")) {
    if (plain)
      throw Error(ErrorKind::kUsage, "--module and --no-python contradict each other", {},
                  "A Python module needs an interpreter.");
    command.insert(command.begin(), {find_program("python3"), "-u", "-m"});
    return command;
  }
  for (const CommandFunction function : commands()) {
    if (plain || function().name != words.front()) continue;
    command.insert(command.begin(), program_path().string());
    return command;
  }
  if (!plain && words.front().ends_with(".py")) {
    if (!std::filesystem::exists(words.front()))
      throw Error(ErrorKind::kUsage, "there is no script '" + words.front() + "'");
    command.insert(command.begin(), {find_program("python3"), "-u"});
    return command;
  }
  command.front() = find_program(words.front());
  return command;
}

void read_nodes(const Arguments& arguments, LaunchOptions& options) {
  if (const auto backend = arguments.maybe("rdzv-backend"); backend && *backend != "c10d") {
    if (*backend != "static")
      throw Error(ErrorKind::kUsage, "--rdzv-backend=" + *backend + " is not supported", {},
                  "Use c10d (one of the nodes hosts the store) or static (--node-rank 0 does); no "
                  "other service is needed.");
  }
  options.nodes = parse_node_range(arguments.text("nnodes"));
  if (arguments.has("standalone")) {
    if (options.nodes.max > 1)
      throw Error(ErrorKind::kUsage, "--standalone is for one node, and --nnodes=" +
                                         arguments.text("nnodes") + " asks for several");
    return;
  }
  if (arguments.has("node-rank")) {
    options.node_rank = static_cast<int>(arguments.integer("node-rank", 0, options.nodes.max - 1));
  }
  options.local_address = arguments.text("local-addr");
  const auto port = arguments.has("master-port")
                        ? static_cast<int>(arguments.integer("master-port", 1, 65535))
                        : kDefaultPort;
  if (const auto endpoint = arguments.maybe("rdzv-endpoint")) {
    parse_endpoint(*endpoint, port, options);
  } else if (const auto address = arguments.maybe("master-addr")) {
    options.endpoint_host = *address;
    options.endpoint_port = port;
  }
  if (!arguments.has("nnodes") || options.nodes.max > 1)
    take_nodes_from_slurm(process_environment(), options);
  if (options.nodes.max > 1) {
    if (options.endpoint_host.empty() || options.endpoint_port == 0)
      throw Error(ErrorKind::kUsage, "several nodes need the place of their store", {},
                  "Give --rdzv-endpoint HOST:PORT, the same on every node; HOST is one of them.");
    if (arguments.text("rdzv-backend") == "static" && !options.node_rank)
      throw Error(ErrorKind::kUsage, "--rdzv-backend=static needs --node-rank", {},
                  "Number the nodes from 0, which hosts the store; or use --rdzv-backend=c10d.");
    if (options.id.empty()) options.id = "none";
    return;
  }
  options.node_rank = std::nullopt;
  // One node: its store is its own, on loopback, at the port that was asked for.
  if (!arguments.has("rdzv-endpoint") && !arguments.has("master-port")) options.endpoint_port = 0;
  if (arguments.has("master-port")) options.endpoint_port = port;
  options.local_address.clear();
}

void read_output(const Arguments& arguments, LaunchOptions& options) {
  options.log_dir = arguments.text("log-dir");
  options.redirects = parse_stream_choice("redirects", arguments.text("redirects"));
  options.tee = parse_stream_choice("tee", arguments.text("tee"));
  if (const auto filter = arguments.maybe("local-ranks-filter"))
    options.shown_local_ranks = parse_rank_list("local-ranks-filter", *filter);
}

int launch_ranks(const Arguments& arguments) {
  LaunchOptions options;
  options.command = command_of(arguments);
  options.id = arguments.text("rdzv-id");
  options.local_ranks = count_ranks("nproc-per-node", arguments.text("nproc-per-node"));
  parse_rendezvous_settings(arguments.text("rdzv-conf"), options);
  read_nodes(arguments, options);
  read_output(arguments, options);
  options.max_restarts = static_cast<int>(arguments.integer("max-restarts", 0, kAnyCount));
  options.monitor_interval_s = arguments.number("monitor-interval", 0.01, 60);
  options.shutdown_timeout_s = arguments.number("shutdown-timeout", 0, 1e6);
  options.signals = parse_signals(arguments.text("signals-to-handle"));
  options.bind_to_numa_nodes = arguments.text("numa-binding") == "node";
  options.environment["TESSERA_COMMAND_LINE"] = arguments.command_line();
  return launch_and_report(options, arguments.log_level());
}

OptionGroup rank_options() {
  return {
      "Ranks",
      {{.name = "nproc-per-node",
        .value = "N",
        .help = "Ranks on this node; auto: as many as GPUs, else as processors; cpu; gpu.",
        .preset = "1"},
       {.name = "max-restarts",
        .value = "N",
        .help = "How often all ranks are started again after a failure, with growing delay. "
                "Exit codes 2 (usage) and 3 (data) are not: they would fail again.",
        .preset = "0"},
       {.name = "no-python",
        .help = "Execute the command as it is, even if it is named like a command of tessera "
                "or ends in .py."},
       {.name = "module", .help = "COMMAND is a Python module, as for python3 -m.", .letter = 'm'},
       {.name = "numa-binding",
        .value = "MODE",
        .help = "node: each rank on the processors of one NUMA node.",
        .preset = "none",
        .choices = {"none", "node"}}}};
}

OptionGroup node_options() {
  return {"Nodes",
          {{.name = "standalone", .help = "One node; its store on a free port. The default."},
           {.name = "nnodes",
            .value = "N|MIN:MAX",
            .help = "Nodes of the job; with MIN:MAX it goes on with those that are left, and takes "
                    "new ones at a restart.",
            .preset = "1"},
           {.name = "node-rank", .value = "N", .help = "This node's number; 0 hosts the store."},
           {.name = "rdzv-endpoint",
            .value = "HOST:PORT",
            .help = "The node that hosts the store, the same on every node (port 29400)."},
           {.name = "rdzv-id",
            .value = "ID",
            .help = "Name of the job, the same on every node. Default: made up."},
           {.name = "rdzv-backend", .value = "NAME", .help = "c10d or static.", .preset = "c10d"},
           {.name = "rdzv-conf",
            .value = "K=V,…",
            .help = "In seconds: join_timeout (600), last_call_timeout (5), heartbeat_timeout "
                    "(10)."},
           {.name = "master-addr", .value = "HOST", .help = "In place of --rdzv-endpoint."},
           {.name = "master-port", .value = "PORT", .help = "With --master-addr."},
           {.name = "local-addr",
            .value = "ADDRESS",
            .help = "This node's address, where the one that is found is not the right one."}}};
}

OptionGroup output_options() {
  return {"Output",
          {{.name = "log-dir",
            .value = "DIR",
            .help = "For stdout.log, stderr.log and error.json, in DIR/JOB/attempt_K/RANK/."},
           {.name = "redirects",
            .value = "S",
            .help = "Streams that go to log files instead: 0 none, 1 stdout, 2 stderr, 3 both; or "
                    "by local rank: 0:1,1:2.",
            .preset = "0",
            .letter = 'r'},
           {.name = "tee",
            .value = "S",
            .help = "Streams that go to log files, too, and are shown line by line with their "
                    "rank.",
            .preset = "0",
            .letter = 't'},
           {.name = "local-ranks-filter",
            .value = "N,…",
            .help = "Show the output of these local ranks only."},
           logging_options().options[0],
           logging_options().options[1]}};
}

OptionGroup watching_options() {
  return {"Watching",
          {{.name = "monitor-interval",
            .value = "SECONDS",
            .help = "Between two looks at what other nodes say.",
            .preset = "0.1"},
           {.name = "signals-to-handle",
            .value = "SIG,…",
            .help = "Forwarded to every rank besides SIGINT, SIGTERM and SIGUSR1.",
            .preset = "SIGHUP,SIGQUIT"},
           {.name = "shutdown-timeout",
            .value = "SECONDS",
            .help = "After a forwarded stop, before ranks are killed; after a failure at most 5.",
            .preset = "30"}}};
}

}  // namespace

const Command& launch_command() {
  static const Command command{
      .name = "launch",
      .summary = "Start and watch ranks on this machine or several, as torchrun does",
      .operands = "[--] COMMAND [arguments]",
      .description =
          "COMMAND is a command of tessera (train …), a Python script, or any program. Every rank "
          "finds its place in the environment that torchrun sets (RANK, WORLD_SIZE, MASTER_ADDR "
          "…).\n\n"
          "When a rank fails, all others are stopped; the summary at the end shows the cause last, "
          "and the exit code is that of the first failed rank (5 for one killed by a signal). "
          "Ctrl-C and SIGTERM are passed on to every rank once; a second one ends all at once. "
          "Under srun with one task a node, nodes and store are taken from Slurm.",
      .groups = {rank_options(), node_options(), output_options(), watching_options()},
      .environment =
          {{"OMP_NUM_THREADS", "Threads of each rank. Default: the processors, shared out."},
           {"TESSERA_JOB_SECRET",
            "Keeps strangers out of the store. One node makes its own; several need the same."}},
      .examples = {{"tessera launch --nproc-per-node 2 -- train quickstart train.max_steps=20",
                    "Two ranks on this machine."},
                   {"tessera launch --nproc-per-node 2 --tee 3 sh -c 'echo $RANK of $WORLD_SIZE'",
                    "Any program; each line with its rank."},
                   {"tessera launch --nnodes 2 --nproc-per-node 4 --rdzv-endpoint node1:29400 -- "
                    "train my.yaml",
                    "The same on both of two machines."}},
      .min_operands = 1,
      .max_operands = -1,
      .completes = Operand::kFile,
      .first_operand_ends_options = true,
      .run = launch_ranks};
  return command;
}

}  // namespace tessera::cli
