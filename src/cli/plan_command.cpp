#include <charconv>
#include <cmath>
#include <string>

#include "base/error.h"
#include "cli/command.h"
#include "cli/engine_loader.h"
#include "cli/program.h"
#include "config/load.h"

namespace tessera::cli {
namespace {

constexpr std::int64_t kMostRanks = 1'000'000;

// "16GiB", "80GB", "1.5TiB", "4096": GiB are powers of 1024, GB of 1000.
std::int64_t bytes_option(const std::string& text) {
  double number = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, code] = std::from_chars(text.data(), end, number);
  const std::string unit(stop, end);
  constexpr std::string_view kPrefixes = "KMGTP";
  double factor = unit.empty() || unit == "B" ? 1 : 0;
  for (std::size_t i = 0; i < kPrefixes.size(); ++i) {
    const std::string prefix(1, kPrefixes[i]);
    const double power = static_cast<double>(i + 1);
    if (unit == prefix + "iB") factor = std::pow(1024, power);
    if (unit == prefix + "B") factor = std::pow(1000, power);
  }
  const double bytes = number * factor;
  if (code == std::errc() && bytes >= 1 && bytes < 9e18) return static_cast<std::int64_t>(bytes);
  throw Error(ErrorKind::kUsage,
              "--memory must be an amount such as 16GiB or 80GB, not '" + text + "'");
}

double rate_option(const Arguments& arguments, std::string_view name, double unit) {
  return arguments.has(name) ? arguments.number(name, 1e-6, 1e9) * unit : 0;
}

int plan(const Arguments& arguments) {
  ConfigSource source;
  source.config = arguments.operands().front();
  source.overrides.assign(arguments.operands().begin() + 1, arguments.operands().end());
  if (const auto device = arguments.maybe("device")) {
    source.overrides.push_back("run.device=" + *device);
  }
  if (const auto folder = arguments.maybe("config-dir")) source.config_dir = *folder;
  source.shipped_dir = shipped_config_dir();
  PlanRequest request;
  request.world_size = arguments.integer("world-size", 1, kMostRanks);
  request.ranks_per_node = arguments.integer("ranks-per-node", 0, kMostRanks);
  if (const auto fit = arguments.maybe("fit")) request.fit = *fit;
  if (const auto memory = arguments.maybe("memory")) request.memory_bytes = bytes_option(*memory);
  if (request.memory_bytes > 0 && request.fit.empty()) {
    throw Error(ErrorKind::kUsage, "--memory says what --fit has to fit into", {},
                "Add --fit batch_size or --fit block_size.");
  }
  request.schedule = arguments.has("schedule");
  if (const auto file = arguments.maybe("svg")) request.svg = *file;
  request.flops = rate_option(arguments, "tflops", 1e12);
  request.inside_bytes = rate_option(arguments, "node-gbs", 1e9);
  request.across_bytes = rate_option(arguments, "network-gbs", 1e9);
  request.json = arguments.has("json");
  request.log_level = arguments.log_level();
  request.config = load_config(source).config;
  return load_engine().plan(request);
}

}  // namespace

const Command& plan_command() {
  static const Command command{
      .name = "plan",
      .summary = "Predict memory and traffic of a run, on any number of ranks",
      .operands = "CONFIG [a.b=c …]",
      .description =
          "Says what each rank of a training run would hold in memory and send in a step, from the "
          "same schedule that training runs. It reads no data, makes no tensor, and needs neither "
          "the ranks nor the device.",
      .groups =
          {{"Ranks",
            {{.name = "world-size", .value = "N", .help = "Ranks of the run.", .preset = "1"},
             {.name = "ranks-per-node",
              .value = "N",
              .help = "Ranks on each node; 0: the config's, else all on one.",
              .preset = "0"},
             {.name = "device",
              .value = "DEVICE",
              .help = "auto, cpu or cuda, here or elsewhere; short for run.device=DEVICE."}}},
           {"Fit",
            {{.name = "fit",
              .value = "SETTING",
              .help = "Find the largest batch_size or block_size that fits, and plan with it.",
              .choices = {"batch_size", "block_size"}},
             {.name = "memory",
              .value = "BYTES",
              .help = "Memory of a device for tensors, such as 16GiB or 80GB; without it what "
                      "this machine has for a rank."}}},
           {"Output",
            {{.name = "schedule", .help = "Print the instructions of a step, too."},
             {.name = "svg",
              .value = "FILE",
              .help = "Draw a step: compute, communication, memory over time."},
             {.name = "tflops",
              .value = "N",
              .help = "Of the drawing: arithmetic of a rank, in TFLOP a second [100]."},
             {.name = "node-gbs",
              .value = "N",
              .help = "Of the drawing: from rank to rank in a node, in GB a second [200]."},
             {.name = "network-gbs",
              .value = "N",
              .help = "Of the drawing: between nodes, in GB a second [12.5]."},
             {.name = "json", .help = "One JSON object on stdout."},
             logging_options().options[0],
             logging_options().options[1]}},
           {"Config",
            {{.name = "config-dir",
              .value = "DIR",
              .help = "Look for configs and groups here first."}}}},
      .examples = {{"tessera plan quickstart", "One process."},
                   {"tessera plan quickstart parallel.strategy=full_shard "
                    "--world-size 16 --ranks-per-node 8 --device cuda",
                    "16 GPUs on two nodes."},
                   {"tessera plan quickstart --fit batch_size --memory 1GiB",
                    "The largest micro-batch."}},
      .min_operands = 1,
      .max_operands = -1,
      .completes = Operand::kConfig,
      .run = plan};
  return command;
}

}  // namespace tessera::cli
