// `tessera doctor --cluster`: the nodes of a job look at each other before they train. Owns: who
// tells what to whom, through the job's store. Not: judging it (cluster_report.h).
#pragma once

#include <chrono>

#include "base/file_system.h"
#include "base/rank_place.h"

namespace tessera::cli {

struct ClusterCheck {
  Path folder;                       // that all nodes must share
  std::chrono::seconds timeout{60};  // for all ranks to report
  bool json = false;
};

// Called by every rank, before it has threads. Rank 0 hosts the job's store unless somebody else
// does, gathers, and prints the report on stdout; all ranks return its exit code. Error{kComm}: the
// store cannot be reached, or rank 0 has gone.
int check_cluster(const RankPlace& place, const ClusterCheck& check);

}  // namespace tessera::cli
