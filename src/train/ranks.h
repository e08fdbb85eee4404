// This process among the ranks of its run. Owns: the watch over the others, and the values that
// rank 0 decides for all. Alone, everything here is an identity: there is no other code path for
// one process.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file_system.h"
#include "checkpoint/save_group.h"
#include "parallel/mesh_groups.h"
#include "parallel/rank_watch.h"
#include "parallel/step_trace.h"
#include "parallel/transports.h"
#include "train/engine_api.h"

namespace tessera {

class Ranks {
 public:
  // Error{kConfig} where parallel.strategy does not fit the number of ranks, or ranks have
  // different settings (it names rank, key and both values); Error{kComm} where the job's store is
  // not reached or a rank does not come. Compares the settings of all ranks.
  Ranks(const TrainRequest& request, Log& log);

  const RankPlace& place() const { return place_; }
  int rank() const { return place_.rank; }
  int world_size() const { return place_.world_size; }
  bool alone() const { return place_.alone(); }
  bool first() const { return place_.rank == 0; }  // the one that writes files and speaks

  // Rank 0 runs `decide` and tells its result; all return it.
  std::string from_first(std::string_view name, const std::function<std::string()>& decide);
  // The least of all ranks' values; `name` is used once.
  std::int64_t least(std::string_view name, std::int64_t value);
  // One rank of each host runs `work` before the others of that host do.
  void host_by_host(std::string_view name, const std::function<void()>& work);
  void meet(std::string_view name);
  // Error{kIo} that names the host which does not see the same folder as rank 0. All ranks call it.
  void require_shared(FileSystem& files, const Path& folder);
  // Error{kInternal} that names the first rank and entry that differs from rank 0's; with
  // `different` > 1, from those of the rank among the first so many that it is a replica of (rank r
  // and rank r % different are equals). `names` and `values` (hashes) go together. All ranks call
  // it; `name` is used once.
  void require_equal(std::string_view name, const std::vector<std::string>& names,
                     const std::vector<std::string>& values, int different = 1);

  void set_phase(const std::string& phase);
  // How `world_size` ranks lie: this run's own number, or for one process any, as if on one node.
  // Error{kUsage} where the settings do not fit.
  MeshLayout layout(const ParallelConfig& config, int world_size) const;
  // Watched: errors name the rank of the world that caused them; and recorded by `trace`, which
  // outlives them. All ranks call it, once.
  MeshCommunicators connect(const ParallelConfig& config, const MeshLayout& layout,
                            const at::Device& device, StepTrace& trace);
  // Of the first `writers` ranks, which write checkpoints together, once; null for the others. Not
  // to be used after this object is gone.
  std::unique_ptr<SaveGroup> save_group(int writers);
  // Turns the failure of a collective into its cause; tells the others of any other failure.
  Error explain(const Error& error);
  void finish();

 private:
  void require_same_settings(const TrainRequest& request);
  GroupPlace place_of(const RankGroup& group, const ParallelConfig& config,
                      const at::Device& device) const;

  RankPlace place_;
  std::vector<int> nodes_ = {0};      // of each rank of the world: its host
  std::unique_ptr<RankWatch> watch_;  // null when alone
};

}  // namespace tessera
