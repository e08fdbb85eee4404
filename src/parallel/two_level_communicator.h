// A group over several nodes as two levels of communicators. Owns: which hop comes first, so that
// less travels between nodes (MiCS, arXiv 2205.00119, section 3.3). Not: who is in which group
// (mesh_groups.h).
#pragma once

#include <memory>

#include "parallel/communicator.h"

namespace tessera {

// `inside`: the ranks of this node, this one with local rank l of L. `across`: the ranks with that
// local rank on the group's nodes, this one on node j of N. The group's rank is l * N + j: what
// equal local ranks gather is then a contiguous part of the result, in its place.
//
// all_gather goes first across nodes, each rank with its own part, then inside the node;
// reduce_scatter the other way round. So a node receives what it lacks once. Sums of bf16 and f16
// are rounded once at each level.
std::unique_ptr<Communicator> make_two_level_communicator(std::unique_ptr<Communicator> inside,
                                                          std::unique_ptr<Communicator> across);

}  // namespace tessera
