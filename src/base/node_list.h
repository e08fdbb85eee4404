// Slurm's compact texts, parsed natively: no scontrol is needed.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tessera {

// "g[10,20-25],b1" -> g10 g20 … g25 b1; "r[1-2]n[01-03]" with several brackets and leading zeros
// kept. Error{kConfig} that shows the place.
std::vector<std::string> parse_node_list(std::string_view text);

// SLURM_TASKS_PER_NODE: "2(x3),1" -> 2 2 2 1. Error{kConfig}.
std::vector<int> parse_tasks_per_node(std::string_view text);

}  // namespace tessera
