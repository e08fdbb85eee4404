// All combinations of what a step can be told, and a part of them that has every pair. For tests.
#pragma once

#include <array>
#include <cstddef>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "train/sharded_training.h"

namespace tessera::sharding {

struct NamedWay {
  std::string name;
  std::vector<std::size_t> choices;  // of each setting
  Way way;
};

// 1 to 4 ranks in shard groups of every divisor; whether parameters are freed after forward
// (full_shard and hybrid_shard) or kept (shard_grad_op and hybrid_shard_zero2); one or four
// micro-batches; when they are reduced; wrap, prefetch, activation checkpointing.
inline std::vector<NamedWay> every_way() {
  const std::vector<Mesh> meshes = {{1, 1}, {1, 2}, {2, 1}, {1, 3}, {3, 1}, {1, 4}, {2, 2}, {4, 1}};
  struct Again {
    const char* name;
    Checkpointing kind;
    int every;
  };
  const std::vector<Again> checkpointing = {{"none", Checkpointing::kNone, 1},
                                            {"full", Checkpointing::kFull, 1},
                                            {"2", Checkpointing::kFull, 2},
                                            {"selective", Checkpointing::kSelective, 1}};
  constexpr std::array kWraps = {Wrap::kTransformer, Wrap::kSize, Wrap::kNone};
  constexpr std::array kPrefetches = {BackwardPrefetch::kPre, BackwardPrefetch::kPost,
                                      BackwardPrefetch::kNone};
  constexpr std::array kReductions = {ReduceWhen::kLastMicroBatch, ReduceWhen::kEachMicroBatch,
                                      ReduceWhen::kTwoHop};
  const std::vector<std::size_t> sizes = {meshes.size(), 2, 2, 3, 3, 3, checkpointing.size()};
  std::vector<NamedWay> ways;
  std::vector<std::size_t> choice(sizes.size());
  for (bool more = true; more;) {
    const Again& again = checkpointing[choice[6]];
    NamedWay named{.name = to_string(meshes[choice[0]]) + ", checkpointing " + again.name,
                   .choices = choice,
                   .way = {.mesh = meshes[choice[0]],
                           .micro_batches = choice[2] == 0 ? 1 : 4,
                           .step = {.wrap = kWraps[choice[4]],
                                    .min_num_params = 5000,
                                    .reshard_after_forward = choice[1] == 0,
                                    .backward_prefetch = kPrefetches[choice[5]],
                                    .reduce = kReductions[choice[3]],
                                    .bucket_bytes = 4096,
                                    .checkpointing = again.kind,
                                    .checkpoint_every = again.every}}};
    for (const std::size_t value : choice) named.name += " " + std::to_string(value);
    ways.push_back(std::move(named));
    more = false;
    for (std::size_t i = 0; i < choice.size() && !more; ++i) {
      choice[i] = (choice[i] + 1) % sizes[i];
      more = choice[i] != 0;
    }
  }
  return ways;
}

// Greedily: the way that has the most pairs which none before it had, until there are none left.
inline std::vector<NamedWay> pairs_of(const std::vector<NamedWay>& ways) {
  using Pair = std::tuple<std::size_t, std::size_t, std::size_t, std::size_t>;
  const auto pairs = [](const NamedWay& way) {
    std::vector<Pair> found;
    for (std::size_t a = 0; a < way.choices.size(); ++a) {
      for (std::size_t b = a + 1; b < way.choices.size(); ++b) {
        found.emplace_back(a, way.choices[a], b, way.choices[b]);
      }
    }
    return found;
  };
  std::set<Pair> missing;
  for (const NamedWay& way : ways) {
    for (const Pair& pair : pairs(way)) missing.insert(pair);
  }
  std::vector<NamedWay> chosen;
  while (!missing.empty()) {
    const NamedWay* best = nullptr;
    std::size_t most = 0;
    for (const NamedWay& way : ways) {
      std::size_t count = 0;
      for (const Pair& pair : pairs(way)) count += missing.count(pair);
      if (count > most) {
        most = count;
        best = &way;
      }
    }
    for (const Pair& pair : pairs(*best)) missing.erase(pair);
    chosen.push_back(*best);
  }
  return chosen;
}

}  // namespace tessera::sharding
