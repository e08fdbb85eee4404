#include "parallel/reduce_ranks.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>
#include <string>
#include <type_traits>

#include "base/error.h"

// Plain loops: with -O3 (CMakeLists.txt) the compiler makes vector instructions of them.

namespace tessera {
namespace {

template <class T>
constexpr bool kIsHalf = std::is_same_v<T, c10::BFloat16> || std::is_same_v<T, c10::Half>;

template <class T>
using Accumulator = std::conditional_t<kIsHalf<T>, float, T>;

// Sums are made in blocks that stay in the first cache, so that each input is read once.
constexpr std::int64_t kBlock = 1024;

template <class T>
Accumulator<T> load(T value) {
  return static_cast<Accumulator<T>>(value);
}

// Without branches, unlike c10's: NaN stays NaN, everything else is rounded to nearest even.
std::uint16_t bfloat16_bits(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
  return static_cast<std::uint16_t>(value != value ? 0x7fc0U : rounded);
}

template <class T>
T store(Accumulator<T> value) {
  if constexpr (std::is_same_v<T, c10::BFloat16>) {
    return c10::BFloat16(bfloat16_bits(value), c10::BFloat16::from_bits());
  } else {
    return static_cast<T>(value);
  }
}

struct Sum {
  template <class A>
  A operator()(A a, A b) const {
    return a + b;
  }
};

struct Max {
  template <class A>
  A operator()(A a, A b) const {
    return a > b || a != a ? a : b;  // b where it is NaN: no comparison with it is true
  }
};

template <class T, class Combine>
void reduce(T* output, std::span<const void* const> inputs, std::int64_t count) {
  const Combine combine;
  const std::size_t last = inputs.size() - 1;
  const auto input = [&](std::size_t rank) { return static_cast<const T*>(inputs[rank]); };
  for (std::int64_t begin = 0; begin < count; begin += kBlock) {
    const std::int64_t n = std::min(kBlock, count - begin);
    const T* first = input(0) + begin;
    const T* end = input(last) + begin;
    T* result = output + begin;
    // ivdep: where output is an input, an element depends on nothing but itself.
    if (last == 1) {
#pragma GCC ivdep
      for (std::int64_t i = 0; i < n; ++i) {
        result[i] = store<T>(combine(load(first[i]), load(end[i])));
      }
      continue;
    }
    Accumulator<T> sums[kBlock];
    for (std::int64_t i = 0; i < n; ++i) sums[i] = load(first[i]);
    for (std::size_t rank = 1; rank < last; ++rank) {
      const T* next = input(rank) + begin;
      for (std::int64_t i = 0; i < n; ++i) sums[i] = combine(sums[i], load(next[i]));
    }
    if (last == 0) {
      for (std::int64_t i = 0; i < n; ++i) result[i] = store<T>(sums[i]);
    } else {
#pragma GCC ivdep
      for (std::int64_t i = 0; i < n; ++i) result[i] = store<T>(combine(sums[i], load(end[i])));
    }
  }
}

template <class T>
void reduce(void* output, std::span<const void* const> inputs, std::int64_t count,
            ReduceOperation operation) {
  if (operation == ReduceOperation::kSum) {
    reduce<T, Sum>(static_cast<T*>(output), inputs, count);
  } else {
    reduce<T, Max>(static_cast<T*>(output), inputs, count);
  }
}

[[noreturn]] void refuse(c10::ScalarType type) {
  throw Error(ErrorKind::kInternal, std::string("no sum over ranks for ") + c10::toString(type));
}

}  // namespace

void reduce_ranks(void* output, std::span<const void* const> inputs, std::int64_t count,
                  c10::ScalarType type, ReduceOperation operation) {
  switch (type) {
    case c10::kFloat: return reduce<float>(output, inputs, count, operation);
    case c10::kDouble: return reduce<double>(output, inputs, count, operation);
    case c10::kLong: return reduce<std::int64_t>(output, inputs, count, operation);
    case c10::kBFloat16: return reduce<c10::BFloat16>(output, inputs, count, operation);
    case c10::kHalf: return reduce<c10::Half>(output, inputs, count, operation);
    default: refuse(type);
  }
}

void widen(float* output, const void* input, std::int64_t count, c10::ScalarType type) {
  const auto convert = [&](const auto* values) {
    for (std::int64_t i = 0; i < count; ++i) output[i] = load(values[i]);
  };
  if (type == c10::kBFloat16) return convert(static_cast<const c10::BFloat16*>(input));
  if (type == c10::kHalf) return convert(static_cast<const c10::Half*>(input));
  refuse(type);
}

void narrow(void* output, const float* input, std::int64_t count, c10::ScalarType type) {
  const auto convert = [&](auto* values) {
    using T = std::remove_pointer_t<decltype(values)>;
    for (std::int64_t i = 0; i < count; ++i) values[i] = store<T>(input[i]);
  };
  if (type == c10::kBFloat16) return convert(static_cast<c10::BFloat16*>(output));
  if (type == c10::kHalf) return convert(static_cast<c10::Half*>(output));
  refuse(type);
}

}  // namespace tessera
