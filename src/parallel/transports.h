// Makes communicators by name. Owns: the list of transports and the choice among them.
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "parallel/communicator.h"

namespace tessera {

// What a transport needs to find its peers.
struct GroupPlace {
  int rank = 0, world_size = 1;              // of the group
  int local_rank = 0, local_world_size = 1;  // among the group's ranks on this host
  // The group's ranks by their numbers in the world, which messages use; empty: the same.
  std::vector<int> world_ranks;
  std::string store_host;  // TCPStore
  int store_port = 0;
  std::string key_prefix;  // of this group and this attempt; no other group may have it
  std::chrono::milliseconds timeout{600000};  // of one operation
  at::Device device = at::kCPU;

  int world_rank(int rank_of_group) const {
    return world_ranks.empty() ? rank_of_group
                               : world_ranks[static_cast<std::size_t>(rank_of_group)];
  }
  // A place for messages: "rank 5 (1 of 2 of its group), shm".
  std::string describe(std::string_view transport) const;
};

// name: auto | gloo | shm | mpi | nccl. auto: nccl on a GPU, shm where all ranks are on one host,
// else gloo (docs/distributed.md has the measurements). Error{kConfig} for a name that is not in
// this build or cannot serve this group, and says why; Error{kComm} where peers are not reached.
std::unique_ptr<Communicator> make_communicator(std::string_view name, const GroupPlace& place);

// Ranks as threads of one process, for tests: element r is rank r's. A rank that never comes, or
// whose communicator is destroyed, ends the others' wait().
std::vector<std::unique_ptr<Communicator>> make_thread_communicators(
    int world_size, std::chrono::milliseconds timeout = std::chrono::milliseconds(60000));

}  // namespace tessera
