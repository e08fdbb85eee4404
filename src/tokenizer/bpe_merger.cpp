#include "tokenizer/bpe_merger.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>
#include <queue>

#include "base/error.h"

namespace tessera {

BpeMerger::BpeMerger(const std::array<TokenId, 256>& byte_ids, std::span<const TokenMerge> merges)
    : byte_ids_(byte_ids), ranks_(merges.size()) {
  merged_.reserve(merges.size());
  for (const TokenMerge& merge : merges) {
    ranks_.insert(merge.left, merge.right, static_cast<std::uint32_t>(merged_.size()));
    merged_.push_back(merge.merged);
  }
}

void BpeMerger::append(std::string_view piece, std::vector<TokenId>& ids) const {
  if (piece.size() <= kShort) {
    append_short(piece, ids);
  } else {
    append_long(piece, ids);
  }
}

void BpeMerger::append_short(std::string_view piece, std::vector<TokenId>& ids) const {
  std::array<TokenId, kShort> tokens;
  std::array<std::uint32_t, kShort> ranks;  // of the pair that starts here
  std::size_t count = piece.size();
  for (std::size_t i = 0; i < count; ++i)
    tokens[i] = byte_ids_[static_cast<unsigned char>(piece[i])];
  for (std::size_t i = 0; i + 1 < count; ++i) ranks[i] = ranks_.find(tokens[i], tokens[i + 1]);
  while (count > 1) {
    std::size_t best = 0;
    for (std::size_t i = 1; i + 1 < count; ++i) {
      if (ranks[i] < ranks[best]) best = i;
    }
    if (ranks[best] == PairMap::kNone) break;
    tokens[best] = merged_[ranks[best]];
    --count;
    const std::size_t moved = count - (best + 1);
    std::memmove(&tokens[best + 1], &tokens[best + 1] + 1, moved * sizeof(TokenId));
    std::memmove(&ranks[best], &ranks[best] + 1, moved * sizeof(std::uint32_t));
    if (moved > 0) ranks[best] = ranks_.find(tokens[best], tokens[best + 1]);
    if (best > 0) ranks[best - 1] = ranks_.find(tokens[best - 1], tokens[best]);
  }
  ids.insert(ids.end(), tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(count));
}

// A linked list of tokens, and a heap of (rank, position) whose entries are checked when they come
// up. A position is the byte at which the token starts.
void BpeMerger::append_long(std::string_view piece, std::vector<TokenId>& ids) const {
  if (piece.size() >= std::numeric_limits<std::uint32_t>::max()) {
    throw Error(
        ErrorKind::kResource,
        "cannot encode a word of " + std::to_string(piece.size()) + " bytes without a break", {},
        "Break the text into lines.");
  }
  struct Node {
    TokenId token;
    std::uint32_t previous, next;  // piece.size() where there is none
    std::uint32_t rank;            // of the pair that starts here
  };
  const auto count = static_cast<std::uint32_t>(piece.size());
  std::vector<Node> nodes(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    nodes[i] = {byte_ids_[static_cast<unsigned char>(piece[i])], i == 0 ? count : i - 1, i + 1,
                PairMap::kNone};
  }
  std::vector<std::uint64_t> waiting;
  waiting.reserve(count);
  for (std::uint32_t i = 0; i + 1 < count; ++i) {
    nodes[i].rank = ranks_.find(nodes[i].token, nodes[i + 1].token);
    if (nodes[i].rank != PairMap::kNone) waiting.push_back(std::uint64_t{nodes[i].rank} << 32 | i);
  }
  std::priority_queue<std::uint64_t, std::vector<std::uint64_t>, std::greater<>> heap(
      std::greater<>{}, std::move(waiting));
  const auto update = [&](std::uint32_t at) {
    Node& node = nodes[at];
    node.rank =
        node.next == count ? PairMap::kNone : ranks_.find(node.token, nodes[node.next].token);
    if (node.rank != PairMap::kNone) heap.push(std::uint64_t{node.rank} << 32 | at);
  };
  while (!heap.empty()) {
    const auto rank = static_cast<std::uint32_t>(heap.top() >> 32);
    const auto at = static_cast<std::uint32_t>(heap.top());
    heap.pop();
    Node& node = nodes[at];
    if (node.rank != rank) continue;
    Node& right = nodes[node.next];
    right.rank = PairMap::kNone;
    node.token = merged_[rank];
    node.next = right.next;
    if (node.next != count) nodes[node.next].previous = at;
    update(at);
    if (node.previous != count) update(node.previous);
  }
  for (std::uint32_t at = 0; at != count; at = nodes[at].next) ids.push_back(nodes[at].token);
}

}  // namespace tessera
