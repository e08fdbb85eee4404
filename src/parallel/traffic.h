// What a rank sends to others. Owns: the count of bytes by verb and kind of link, for the best
// algorithms, whatever a transport does really: so a strategy's traffic can be compared with its
// formula on any machine. Not: who lies where (the caller says it).
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>

#include "parallel/collective_communicator.h"
#include "parallel/rank_group.h"

namespace tessera {

enum class Link { kInsideNode, kAcrossNodes };

struct TrafficCounts {
  std::array<std::array<std::int64_t, 2>, 5> sent_bytes{};  // [Verb][Link]

  std::int64_t of(Verb verb, Link link) const {
    return sent_bytes[static_cast<std::size_t>(verb)][static_cast<std::size_t>(link)];
  }
  std::int64_t of(Verb verb) const {
    return of(verb, Link::kInsideNode) + of(verb, Link::kAcrossNodes);
  }
  std::int64_t of(Link link) const;  // of all verbs
  bool operator==(const TrafficCounts&) const = default;
};

// Filled by the communicators of one rank; all functions are for any thread.
class Traffic {
 public:
  void add(Verb verb, Link link, std::int64_t bytes);
  TrafficCounts counts() const;
  void reset();

 private:
  mutable std::mutex mutex_;
  TrafficCounts counts_;
};

// Bytes that one of `world_size` ranks sends in a ring: (p-1) n for all_gather and reduce_scatter
// with n bytes a rank, 2 (p-1)/p M for all_reduce of M bytes, M for a broadcast by every rank but
// the one before the root. `bytes`: n, or M.
std::int64_t ring_bytes(Verb verb, std::int64_t bytes, int world_size, bool before_root);

// The link from this rank to the next one of the group, where nodes are so many neighbouring ranks
// of the world each (0 or less: all ranks are on one node).
Link link_to_next(const RankGroup& group, int ranks_per_node);

// The communicator, with every operation counted when it is asked for, as sent over `to_next`: the
// ring's order is the group's. The two levels of a group are counted each by itself, below
// make_two_level_communicator(). `traffic` outlives it.
std::unique_ptr<Communicator> make_counting_communicator(std::unique_ptr<Communicator> communicator,
                                                         Link to_next, Traffic& traffic);

}  // namespace tessera
