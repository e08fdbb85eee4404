#include <cstdio>

#include "base/error.h"
#include "cli/command.h"
#include "cli/doctor_cluster.h"
#include "cli/doctor_report.h"
#include "cli/own_place.h"

namespace tessera::cli {
namespace {

int doctor_of_cluster(const Arguments& arguments) {
  if (arguments.has("measure")) {
    throw Error(ErrorKind::kUsage, "tessera doctor: --measure and --cluster do not go together", {},
                "Leave one of them out.");
  }
  ClusterCheck check;
  check.folder = std::filesystem::absolute(arguments.text("folder")).lexically_normal();
  if (!check.folder.has_filename()) check.folder = check.folder.parent_path();  // "a/." is "a/"
  check.timeout = std::chrono::seconds(arguments.integer("timeout", 1, 3600));
  check.json = arguments.has("json");
  return check_cluster(own_place(), check);
}

int doctor(const Arguments& arguments) {
  if (arguments.has("cluster")) return doctor_of_cluster(arguments);
  for (const char* name : {"folder", "timeout"}) {
    if (arguments.has(name)) {
      throw Error(ErrorKind::kUsage,
                  "tessera doctor: --" + std::string(name) + " is for --cluster only", {},
                  "Add --cluster, or leave it out.");
    }
  }
  const DoctorReport report = collect_report(arguments.has("measure"));
  const std::string text = arguments.has("json") ? report_json(report) + "\n" : report_text(report);
  std::fwrite(text.data(), 1, text.size(), stdout);
  return report.training_possible() ? 0 : 1;
}

}  // namespace

const Command& doctor_command() {
  static const Command command{
      .name = "doctor",
      .summary = "What this machine offers for training, and what is missing",
      .operands = "",
      .description =
          "Shows processor, memory, disk, the engine and its torch, and for everything that is "
          "missing the command that brings it. Works where torch or the engine are missing or "
          "broken. Exits with 0 if training is possible here, else with 1.\n\n"
          "With --cluster, started once on every node of a job, the nodes look at each other: the "
          "same build, torch, shared folder, addresses, ports in both directions, clocks, "
          "processors, memory, GPUs. Rank 0 prints a table. Exits with 0 if they can train "
          "together, 5 if a node is not reached, 4 if the folder is not shared, 1 if a build "
          "differs or does not work.",
      .groups = {{"Doctor",
                  {{.name = "measure",
                    .help = "Also measure the speed of matrix products, which bounds that of "
                            "training (a few seconds)."},
                   {.name = "json", .help = "One JSON object on stdout."}}},
                 {"Cluster",
                  {{.name = "cluster", .help = "Check the nodes of a job against each other."},
                   {.name = "folder",
                    .value = "DIR",
                    .help = "The folder that all nodes must share, as run.dir will lie in it.",
                    .preset = "."},
                   {.name = "timeout",
                    .value = "S",
                    .help = "How long to wait for all ranks, in seconds.",
                    .preset = "60"}}}},
      .environment = {{"TESSERA_CACHE", "The cache folder. Default: ~/.cache/tessera."},
                      {"OMP_NUM_THREADS", "Limits the threads of the engine."}},
      .examples = {{"tessera doctor", "Everything but the speed."},
                   {"tessera doctor --measure --json", "For scripts."},
                   {"srun tessera doctor --cluster", "In a Slurm job, before the training."}},
      .run = doctor};
  return command;
}

}  // namespace tessera::cli
