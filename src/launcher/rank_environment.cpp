#include "launcher/rank_environment.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <string_view>
#include <vector>

namespace tessera {
namespace {

// "0-3,8,10-11"; what is not of that form is left out.
cpu_set_t parse_processor_list(std::string_view text) {
  cpu_set_t set;
  CPU_ZERO(&set);
  while (!text.empty()) {
    const std::string_view part = text.substr(0, text.find(','));
    unsigned first = 0;
    const char* end = part.data() + part.size();
    auto result = std::from_chars(part.data(), end, first);
    unsigned last = first;
    if (result.ec == std::errc() && result.ptr != end && *result.ptr == '-')
      result = std::from_chars(result.ptr + 1, end, last);
    if (result.ec == std::errc())
      for (unsigned i = first; i <= last && i < CPU_SETSIZE; ++i) CPU_SET(i, &set);
    text.remove_prefix(std::min(text.size(), part.size() + 1));
  }
  return set;
}

}  // namespace

std::map<std::string, std::string> rank_environment(const LaunchOptions& options,
                                                    const Membership& members,
                                                    const StorePlace& store, int restart,
                                                    int local_rank) {
  const std::string rank = std::to_string(members.first_rank(members.self) + local_rank);
  const std::string world = std::to_string(members.world_size());
  std::map<std::string, std::string> variables = options.environment;
  variables["RANK"] = rank;
  variables["LOCAL_RANK"] = std::to_string(local_rank);
  variables["WORLD_SIZE"] = world;
  variables["LOCAL_WORLD_SIZE"] = std::to_string(options.local_ranks);
  variables["GROUP_RANK"] = std::to_string(members.self);
  variables["GROUP_WORLD_SIZE"] = std::to_string(members.nodes.size());
  variables["ROLE_RANK"] = rank;
  variables["ROLE_WORLD_SIZE"] = world;
  variables["ROLE_NAME"] = "default";
  variables["MASTER_ADDR"] = store.host;
  variables["MASTER_PORT"] = std::to_string(store.port);
  variables["TORCHELASTIC_RESTART_COUNT"] = std::to_string(restart);
  variables["TORCHELASTIC_MAX_RESTARTS"] = std::to_string(options.max_restarts);
  variables["TORCHELASTIC_RUN_ID"] = members.job;
  variables["TORCHELASTIC_USE_AGENT_STORE"] = "True";
  variables["TESSERA_LAUNCHER"] = "1";
  return variables;
}

int thread_share(int processors, int local_ranks) { return std::max(1, processors / local_ranks); }

std::optional<cpu_set_t> numa_processors(int local_rank, int local_ranks, const Path& root) {
  std::error_code error;
  std::vector<cpu_set_t> nodes;
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return std::nullopt;
  for (int i = 0;; ++i) {
    const Path folder = root / ("sys/devices/system/node/node" + std::to_string(i));
    if (!std::filesystem::is_directory(folder, error)) break;
    std::ifstream file(folder / "cpulist");
    std::string text;
    std::getline(file, text);
    cpu_set_t set = parse_processor_list(text);
    CPU_AND(&set, &set, &allowed);
    if (CPU_COUNT(&set) > 0) nodes.push_back(set);  // a node may have memory only
  }
  if (nodes.size() < 2) return std::nullopt;
  const std::size_t index =
      static_cast<std::size_t>(local_rank) * nodes.size() / static_cast<std::size_t>(local_ranks);
  return nodes[index];
}

}  // namespace tessera
