#include "ops/random_normal.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/hash.h"
#include "base/philox.h"

namespace tessera {

void fill_normal(at::Tensor& tensor, double std, std::uint64_t seed, std::string_view name,
                 std::int64_t first_index) {
  float* const out = tensor.mutable_data_ptr<float>();
  const std::int64_t count = tensor.numel();
  const std::uint64_t name_hash = hash64(name);
  const std::int64_t end = first_index + count;
  at::parallel_for(
      first_index / 4, (end + 3) / 4, 4096, [&](std::int64_t first, std::int64_t last) {
        for (std::int64_t block = first; block < last; ++block) {
          const PhiloxBlock bits = philox4x32(
              {static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32),
               static_cast<std::uint32_t>(name_hash), static_cast<std::uint32_t>(name_hash >> 32)},
              seed);
          for (int pair = 0; pair < 2; ++pair) {
            // (0, 1]: the logarithm is finite.
            const double u = (bits[2 * pair] + 1.0) / 4294967296.0;
            const double angle = 2.0 * std::numbers::pi * (bits[2 * pair + 1] / 4294967296.0);
            const double radius = std * std::sqrt(-2.0 * std::log(u));
            const std::int64_t index = 4 * block + 2 * pair;
            const auto put = [&](std::int64_t at, double value) {
              if (at >= first_index && at < end) out[at - first_index] = static_cast<float>(value);
            };
            put(index, radius * std::cos(angle));
            put(index + 1, radius * std::sin(angle));
          }
        }
      });
}

}  // namespace tessera
