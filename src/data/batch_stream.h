// Batches made ahead of their use. Owns: one thread and a bounded queue. Not: their order
// (sampler.h).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "data/batch.h"
#include "data/sampler.h"

namespace tessera {

// Gives the batches of `sampler` from `start` on, without end. To go on after a checkpoint, make a
// new one at the position_after of the last batch that was trained on: what had been made ahead is
// not lost and not repeated.
// next() from one thread at a time; the destructor stops the thread and drops what was made ahead.
class BatchStream {
 public:
  BatchStream(std::shared_ptr<const Sampler> sampler, std::int64_t rows, SamplerPosition start,
              std::int64_t ahead = 2);
  // Any other source: `fill` makes the batch at a position; called on the stream's thread only.
  using Fill = std::function<void(const SamplerPosition&, GlobalBatch&)>;
  BatchStream(Fill fill, SamplerPosition start, std::int64_t ahead = 2);
  ~BatchStream();
  BatchStream(const BatchStream&) = delete;
  BatchStream& operator=(const BatchStream&) = delete;

  // Waits for the next batch and swaps it into `batch`, whose memory goes back to the thread: in
  // steady state nothing is allocated. What `fill` threw is thrown here, after the batches that
  // were made before it, and again at every later call.
  void next(GlobalBatch& batch);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tessera
