#include "launcher/slurm_nodes.h"

#include <charconv>
#include <cstdint>

#include "base/error.h"
#include "base/node_list.h"

namespace tessera {
namespace {

constexpr int kFirstPort = 20000, kPorts = 10000;

std::optional<int> number(const Environment& environment, std::string_view name) {
  const auto text = environment(name);
  if (!text) return std::nullopt;
  int value = 0;
  const char* end = text->data() + text->size();
  const auto result = std::from_chars(text->data(), end, value);
  if (result.ec == std::errc() && result.ptr == end && value >= 0) return value;
  throw Error(ErrorKind::kConfig, std::string(name) + " is not a number: '" + *text + "'",
              "environment");
}

}  // namespace

bool take_nodes_from_slurm(const Environment& environment, LaunchOptions& options) {
  if (!options.endpoint_host.empty() || options.node_rank) return false;
  const auto nodes = number(environment, "SLURM_NNODES");
  const auto node = number(environment, "SLURM_NODEID");
  const auto task = number(environment, "SLURM_PROCID");
  // The shell of a batch script has no task number; there the launch is of one node, as asked.
  if (!nodes || *nodes < 2 || !node || !task || !environment("SLURM_STEP_ID")) return false;
  const auto tasks = number(environment, "SLURM_NTASKS");
  if (tasks && *tasks != *nodes) {
    throw Error(ErrorKind::kUsage,
                "srun has started " + std::to_string(*tasks) + " launchers on " +
                    std::to_string(*nodes) + " nodes",
                {},
                "One starts all ranks of its node: use srun --ntasks-per-node=1. (Ranks that srun "
                "starts itself need no launcher: srun tessera train …)");
  }
  auto list = environment("SLURM_STEP_NODELIST");
  if (!list) list = environment("SLURM_JOB_NODELIST");
  const auto hosts = list ? parse_node_list(*list) : std::vector<std::string>();
  if (static_cast<int>(hosts.size()) != *nodes || *node >= *nodes) {
    throw Error(ErrorKind::kConfig,
                "Slurm's variables contradict each other: SLURM_NNODES=" + std::to_string(*nodes) +
                    ", SLURM_NODEID=" + std::to_string(*node) + " and the node list '" +
                    list.value_or("") + "'",
                "environment", "Give --nnodes, --node-rank and --rdzv-endpoint.");
  }
  const std::string job = environment("SLURM_JOB_ID").value_or("0");
  const std::string step = environment("SLURM_STEP_ID").value_or("0");
  std::uint32_t sum = 0;
  for (const char c : job + "." + step) sum = sum * 31 + static_cast<unsigned char>(c);
  if (options.nodes.max == 1) options.nodes = {*nodes, *nodes};
  options.node_rank = node;
  options.endpoint_host = hosts.front();
  options.endpoint_port = kFirstPort + static_cast<int>(sum % kPorts);
  if (options.id.empty()) options.id = "slurm-" + job + "." + step;
  return true;
}

}  // namespace tessera
