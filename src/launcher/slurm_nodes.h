// A launch under Slurm. Owns: reading nodes, this node's place and the endpoint from the variables
// of a job step with one task on each node.
#pragma once

#include "base/rank_place.h"
#include "launcher/launch_options.h"

namespace tessera {

// Fills in nodes, node rank, endpoint and id where this process is a task of a step over several
// nodes and the options name no endpoint; true if it did. The first host of the step is the head;
// the port follows from the job's number, so that two jobs on a host do not meet. Error{kConfig}:
// the variables contradict each other; Error{kUsage}: several tasks on a node.
bool take_nodes_from_slurm(const Environment& environment, LaunchOptions& options);

}  // namespace tessera
