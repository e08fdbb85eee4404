// Sums over ranks, element by element. Owns: the order of additions and the rounding that make a
// result the same bits wherever it is computed. Not: where the values come from.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <span>

#include "parallel/communicator.h"

namespace tessera {

// output[i] = inputs[0][i] + inputs[1][i] + …, from left to right; bf16 and f16 are added in f32
// and rounded once. kMax: the greatest, NaN where there is one. output may be one of the inputs.
// Types as in Communicator::all_reduce.
void reduce_ranks(void* output, std::span<const void* const> inputs, std::int64_t count,
                  c10::ScalarType type, ReduceOperation operation);

// bf16 or f16 to f32 and, rounded to nearest even, back; for transports that cannot add these.
void widen(float* output, const void* input, std::int64_t count, c10::ScalarType type);
void narrow(void* output, const float* input, std::int64_t count, c10::ScalarType type);

}  // namespace tessera
