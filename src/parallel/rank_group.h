// Some ranks of the world that talk with each other. Owns: their order. Not: how they talk.
#pragma once

#include <string>
#include <vector>

namespace tessera {

struct RankGroup {
  std::string name;        // "world", "shard-1": no two groups of a run have the same
  std::vector<int> ranks;  // ranks of the world, in the group's order; rank i of the group is [i]
  int rank = 0;            // this process's rank in the group

  int size() const { return static_cast<int>(ranks.size()); }
};

}  // namespace tessera
