// What a rank finds in its environment, and on which processors it runs. Owns: the variables of
// torchrun's contract and Tessera's own beside them. Who reads them: base/rank_place.h, PyTorch.
#pragma once

#include <sched.h>

#include <map>
#include <optional>
#include <string>

#include "base/file_system.h"
#include "launcher/launch_options.h"
#include "launcher/membership.h"

namespace tessera {

struct StorePlace {
  std::string host;  // as this node reaches it
  int port = 0;
};

std::map<std::string, std::string> rank_environment(const LaunchOptions& options,
                                                    const Membership& members,
                                                    const StorePlace& store, int restart,
                                                    int local_rank);

// Threads for each of `local_ranks` that share `processors`; at least 1.
int thread_share(int processors, int local_ranks);

// The processors of the NUMA node that local rank `local_rank` belongs to, as far as this process
// may use them; nothing where the machine shows fewer than two nodes. `root` stands for "/".
std::optional<cpu_set_t> numa_processors(int local_rank, int local_ranks, const Path& root = "/");

}  // namespace tessera
