// How a collective is cut into chunks for shared memory, and what one rank does with a chunk. Owns:
// which bytes go where. Not: waiting for other ranks (shm_communicator.cpp).
//
// A chunk passes three stages on every rank. copy: what others need goes into this rank's slot.
// reduce: this rank adds its slice over all ranks. read: results are taken out of the others'
// slots. A rank's own values are read from and written to its tensors directly: of an all_reduce
// over W ranks it copies (W-1)/W of the bytes in and as many out. Its own slice of its own slot is
// free then, and is where the sum goes.
#pragma once

#include <cstdint>
#include <vector>

#include "parallel/collective_communicator.h"
#include "parallel/shm_segment.h"

namespace tessera {

class ShmPlan {
 public:
  enum class Counter { kCopied, kReduced };

  ShmPlan(const Collective& collective, const ShmSegment& segment, int rank, int world_size);

  std::int64_t chunks() const { return chunks_; }
  // Whether the reduce stage does something, and so waits until all ranks have copied.
  bool reduces() const { return sliced_ || collective_->verb == Verb::kReduceScatter; }
  // What the read stage waits for, and of which rank (-1: of all). A rank that reads nothing in it
  // waits for nobody.
  Counter read_after() const { return sliced_ ? Counter::kReduced : Counter::kCopied; }
  bool reads() const;
  int read_from() const { return collective_->verb == Verb::kBroadcast ? collective_->root : -1; }
  // The same on ranks that are at the same place of the same program.
  std::uint64_t signature(std::int64_t index) const;

  // `index` counts the chunks of this collective, `chunk` those of the communicator.
  void copy(std::int64_t index, std::uint64_t chunk) const;
  void reduce(std::int64_t index, std::uint64_t chunk) const;
  void read(std::int64_t index, std::uint64_t chunk) const;

 private:
  struct Range {
    std::int64_t begin = 0, count = 0;  // elements
  };
  Range range(std::int64_t index) const;  // of the tensor, or of each rank's part
  Range slice(std::int64_t index, int rank) const;
  void reduce_slice(const Range& slice, std::int64_t input_begin, std::size_t slot_offset,
                    std::uint64_t chunk, bool keep) const;
  const std::byte* input(std::int64_t element) const { return input_ + element * item_bytes_; }
  std::byte* output(std::int64_t element) const { return output_ + element * item_bytes_; }
  std::size_t bytes(std::int64_t elements) const {
    return static_cast<std::size_t>(elements * item_bytes_);
  }

  const Collective* collective_;
  const ShmSegment* segment_;
  int rank_, world_size_;
  const std::byte* input_ = nullptr;
  std::byte* output_ = nullptr;
  std::int64_t item_bytes_ = 1;
  std::int64_t chunk_elements_ = 1;  // of the tensor, or of each rank's part
  std::int64_t slice_elements_ = 0;  // of one rank in a chunk
  std::int64_t chunks_ = 1;
  bool sliced_ = false;
};

}  // namespace tessera
