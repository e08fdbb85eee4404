#include "parallel/shm_plan.h"

#include <algorithm>
#include <cstring>

#include "parallel/reduce_ranks.h"

namespace tessera {
namespace {

// Up to here every rank adds all of an all_reduce itself: more additions, but one wait less.
constexpr std::int64_t kWholeBytes = 8 * 1024;
constexpr std::int64_t kAlignment = 64;  // ranks write no common cache line

std::int64_t divide_up(std::int64_t value, std::int64_t by) { return (value + by - 1) / by; }

}  // namespace

ShmPlan::ShmPlan(const Collective& collective, const ShmSegment& segment, int rank, int world_size)
    : collective_(&collective), segment_(&segment), rank_(rank), world_size_(world_size) {
  if (collective.verb == Verb::kBarrier) return;
  input_ = static_cast<const std::byte*>(collective.input.const_data_ptr());
  output_ = static_cast<std::byte*>(collective.output.data_ptr());
  item_bytes_ = static_cast<std::int64_t>(collective.output.element_size());
  constexpr auto kSlotBytes = static_cast<std::int64_t>(ShmSegment::kSlotBytes);
  const std::int64_t slice_bytes = kSlotBytes / world_size / kAlignment * kAlignment;
  const bool reduces_all = collective.verb == Verb::kAllReduce;
  sliced_ = reduces_all && world_size > 1 && collective.count * item_bytes_ > kWholeBytes;
  if (sliced_) {
    slice_elements_ = slice_bytes / item_bytes_;
    chunk_elements_ = slice_elements_ * world_size;
    if (chunk_elements_ > collective.count) {  // one chunk: the slices are equal, but for the last
      slice_elements_ = divide_up(divide_up(collective.count, world_size), kAlignment) * kAlignment;
      slice_elements_ = std::min(slice_elements_, slice_bytes / item_bytes_);
      chunk_elements_ = slice_elements_ * world_size;
    }
  } else if (collective.verb == Verb::kReduceScatter) {
    chunk_elements_ = slice_elements_ = slice_bytes / item_bytes_;
  } else {
    chunk_elements_ = kSlotBytes / item_bytes_;
  }
  chunks_ = divide_up(collective.count, chunk_elements_);
}

bool ShmPlan::reads() const {
  switch (collective_->verb) {
    case Verb::kReduceScatter: return false;
    case Verb::kBroadcast: return rank_ != collective_->root;
    default: return true;
  }
}

std::uint64_t ShmPlan::signature(std::int64_t index) const {
  const Collective& of = *collective_;
  std::uint64_t text = static_cast<std::uint64_t>(of.verb) | 8U;  // never 0
  text = text << 1 | static_cast<std::uint64_t>(of.operation);
  text = text << 8 | static_cast<std::uint64_t>(of.root & 0xff);
  const auto type = of.output.defined() ? of.output.scalar_type() : at::kByte;
  text = text << 8 | static_cast<std::uint64_t>(type);
  return text << 40 | (static_cast<std::uint64_t>(of.count - index) & 0xffffffffffU);
}

ShmPlan::Range ShmPlan::range(std::int64_t index) const {
  const std::int64_t begin = index * chunk_elements_;
  return {begin, std::min(chunk_elements_, collective_->count - begin)};
}

// A rank's share of a chunk of an all_reduce; empty for the last ranks where it is short.
ShmPlan::Range ShmPlan::slice(std::int64_t index, int rank) const {
  const Range chunk = range(index);
  const std::int64_t begin = std::min(slice_elements_ * rank, chunk.count);
  return {chunk.begin + begin, std::min(slice_elements_, chunk.count - begin)};
}

void ShmPlan::copy(std::int64_t index, std::uint64_t chunk) const {
  const Range all = range(index);
  std::byte* slot = segment_->slot(rank_, chunk);
  switch (collective_->verb) {
    case Verb::kAllReduce:
      if (!sliced_) {
        std::memcpy(slot, input(all.begin), bytes(all.count));
        return;
      }
      for (int rank = 0; rank < world_size_; ++rank) {
        const Range part = slice(index, rank);
        if (rank == rank_ || part.count == 0) continue;
        std::memcpy(slot + bytes(slice_elements_ * rank), input(part.begin), bytes(part.count));
      }
      return;
    case Verb::kReduceScatter:
      for (int rank = 0; rank < world_size_; ++rank) {
        if (rank == rank_) continue;
        std::memcpy(slot + bytes(slice_elements_ * rank),
                    input(rank * collective_->count + all.begin), bytes(all.count));
      }
      return;
    case Verb::kBroadcast:
      if (rank_ == collective_->root) std::memcpy(slot, input(all.begin), bytes(all.count));
      return;
    case Verb::kAllGather: {
      std::memcpy(slot, input(all.begin), bytes(all.count));
      std::byte* own = output(rank_ * collective_->count + all.begin);
      if (own != input(all.begin)) std::memcpy(own, input(all.begin), bytes(all.count));
      return;
    }
    case Verb::kBarrier: return;
  }
}

void ShmPlan::reduce_slice(const Range& slice, std::int64_t input_begin, std::size_t slot_offset,
                           std::uint64_t chunk, bool keep) const {
  if (slice.count == 0) return;
  std::vector<const void*> inputs;
  for (int rank = 0; rank < world_size_; ++rank) {
    inputs.push_back(rank == rank_ ? input(input_begin)
                                   : segment_->slot(rank, chunk) + slot_offset);
  }
  reduce_ranks(output(slice.begin), inputs, slice.count, collective_->output.scalar_type(),
               collective_->operation);
  if (keep) {
    std::memcpy(segment_->slot(rank_, chunk) + slot_offset, output(slice.begin),
                bytes(slice.count));
  }
}

void ShmPlan::reduce(std::int64_t index, std::uint64_t chunk) const {
  const std::size_t offset = bytes(slice_elements_ * rank_);
  if (sliced_) {
    const Range own = slice(index, rank_);
    reduce_slice(own, own.begin, offset, chunk, true);
  } else if (collective_->verb == Verb::kReduceScatter) {
    const Range all = range(index);
    reduce_slice(all, rank_ * collective_->count + all.begin, offset, chunk, false);
  }
}

void ShmPlan::read(std::int64_t index, std::uint64_t chunk) const {
  const Range all = range(index);
  switch (collective_->verb) {
    case Verb::kAllReduce:
      if (!sliced_) return reduce_slice(all, all.begin, 0, chunk, false);
      for (int rank = 0; rank < world_size_; ++rank) {
        const Range part = slice(index, rank);
        if (rank == rank_ || part.count == 0) continue;
        std::memcpy(output(part.begin), segment_->slot(rank, chunk) + bytes(slice_elements_ * rank),
                    bytes(part.count));
      }
      return;
    case Verb::kAllGather:
      for (int rank = 0; rank < world_size_; ++rank) {
        if (rank == rank_) continue;
        std::memcpy(output(rank * collective_->count + all.begin), segment_->slot(rank, chunk),
                    bytes(all.count));
      }
      return;
    case Verb::kBroadcast:
      if (rank_ != collective_->root) {
        std::memcpy(output(all.begin), segment_->slot(collective_->root, chunk), bytes(all.count));
      }
      return;
    case Verb::kReduceScatter:
    case Verb::kBarrier: return;
  }
}

}  // namespace tessera
