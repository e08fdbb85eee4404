// Logits of the next token for a batch of sequences of unequal lengths. Owns: left padding,
// positions, masks, and the cache. Not: which token is chosen (sampling.h), texts (generator.h).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "inference/kv_cache.h"
#include "parallel/executor.h"

namespace tessera {

// Sequences are rows; shorter ones are padded on the left and never see the padding, so each gets
// the logits it would get alone, up to rounding. Not thread-safe.
class Decoder {
 public:
  enum class Caching { kOff, kOn };

  // `executor` must outlive the decoder. kOff: only prefill() may be used.
  Decoder(Executor& executor, const KvCacheShape& cache_shape, Caching caching);

  // Forgets everything and computes all of `sequences` (none empty, none longer than the model's
  // context) at once. `expected_length`: how long the longest will become; memory is made ready for
  // it. Returns (rows, vocabulary) f32 on the CPU: logits after the last token of each.
  at::Tensor prefill(const std::vector<std::span<const std::int64_t>>& sequences,
                     std::int64_t expected_length = 0);
  // Appends one token to each row and returns the logits after it, as prefill does.
  at::Tensor step(const std::vector<std::int64_t>& tokens);
  // Goes on with these rows, in this order, a row as often as it is named. Padding that no row
  // needs any more is dropped.
  void select_rows(const std::vector<std::int64_t>& rows);

  std::int64_t cache_bytes() const { return bytes(cache_); }

 private:
  at::Tensor last_logits(BatchContext& context, std::int64_t columns);
  bool any_padding() const;

  Executor* executor_;
  KvCacheShape cache_shape_;
  Caching caching_;
  KvCache cache_;
  std::vector<std::int64_t> padding_;  // columns on the left of each row
  std::int64_t columns_ = 0;           // of the longest row
};

}  // namespace tessera
