#include "ops/dropout.h"

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/stack.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "base/philox.h"
#include "ops/cpu_clones.h"

namespace tessera {
namespace {

// The constants of Philox4x32 (base/philox.h), for the side-by-side forms below.
constexpr std::uint32_t kPhiloxMultiplier0 = 0xD2511F53, kPhiloxMultiplier1 = 0xCD9E8D57;
constexpr std::uint32_t kPhiloxWeyl0 = 0x9E3779B9, kPhiloxWeyl1 = 0xBB67AE85;

// An element is kept when its 32 random bits are below this.
std::uint32_t threshold(double p) {
  return static_cast<std::uint32_t>(std::min((1.0 - p) * 4294967296.0, 4294967295.0));
}

// Counter of four elements: their index in the row, the row, the site, the step; the key is the
// seed.
PhiloxBlock counter_of(std::int64_t block, std::int64_t row, const DropoutKey& key) {
  return {static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(row), key.site,
          static_cast<std::uint32_t>(key.step)};
}

template <class Scalar>
TESSERA_CPU_CLONES void mask_row(const Scalar* in, Scalar* out, std::int64_t begin,
                                 std::int64_t end, std::int64_t row, float scale,
                                 std::uint32_t keep_below, const DropoutKey& key) {
  // Sixteen generators side by side, so that the compiler can use vector registers.
  constexpr std::int64_t kLanes = 16, kStride = 4 * kLanes;
  for (std::int64_t first = begin; first < end; first += kStride) {
    std::uint32_t c0[kLanes], c1[kLanes], c2[kLanes], c3[kLanes];
    for (int lane = 0; lane < kLanes; ++lane) {
      const PhiloxBlock counter = counter_of(first / 4 + lane, row, key);
      c0[lane] = counter[0], c1[lane] = counter[1], c2[lane] = counter[2], c3[lane] = counter[3];
    }
    auto key0 = static_cast<std::uint32_t>(key.seed),
         key1 = static_cast<std::uint32_t>(key.seed >> 32);
    for (int round = 0; round < 10; ++round) {
      for (int lane = 0; lane < kLanes; ++lane) {
        const std::uint64_t product0 = std::uint64_t{kPhiloxMultiplier0} * c0[lane];
        const std::uint64_t product1 = std::uint64_t{kPhiloxMultiplier1} * c2[lane];
        c0[lane] = static_cast<std::uint32_t>(product1 >> 32) ^ c1[lane] ^ key0;
        c1[lane] = static_cast<std::uint32_t>(product1);
        c2[lane] = static_cast<std::uint32_t>(product0 >> 32) ^ c3[lane] ^ key1;
        c3[lane] = static_cast<std::uint32_t>(product0);
      }
      key0 += kPhiloxWeyl0;
      key1 += kPhiloxWeyl1;
    }
    float factor[kStride];
    for (int lane = 0; lane < kLanes; ++lane) {
      factor[4 * lane] = c0[lane] < keep_below ? scale : 0.0f;
      factor[4 * lane + 1] = c1[lane] < keep_below ? scale : 0.0f;
      factor[4 * lane + 2] = c2[lane] < keep_below ? scale : 0.0f;
      factor[4 * lane + 3] = c3[lane] < keep_below ? scale : 0.0f;
    }
    const std::int64_t count = std::min(kStride, end - first);
    for (std::int64_t i = 0; i < count; ++i) {
      out[first + i] = static_cast<Scalar>(static_cast<float>(in[first + i]) * factor[i]);
    }
  }
}

at::Tensor apply_on_cpu(const at::Tensor& x, double p, const DropoutKey& key) {
  const at::Tensor in = x.contiguous();
  at::Tensor out = at::empty_like(in, at::MemoryFormat::Contiguous);
  const std::int64_t rows = in.dim() == 0 ? 1 : in.size(0);
  const std::int64_t row_elements = rows == 0 ? 0 : in.numel() / rows;
  constexpr std::int64_t kBlock = 4096;  // a multiple of the kernel's stride
  const std::int64_t blocks_a_row = (row_elements + kBlock - 1) / kBlock;
  const auto scale = static_cast<float>(1.0 / (1.0 - p));
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kBFloat16, at::kHalf, in.scalar_type(), "keyed_dropout", [&] {
    const scalar_t* source = in.const_data_ptr<scalar_t>();
    scalar_t* target = out.mutable_data_ptr<scalar_t>();
    at::parallel_for(0, rows * blocks_a_row, 4, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t block = first; block < last; ++block) {
        const std::int64_t row = block / blocks_a_row, begin = block % blocks_a_row * kBlock;
        mask_row(source + row * row_elements, target + row * row_elements, begin,
                 std::min(begin + kBlock, row_elements), key.first_row + row, scale, threshold(p),
                 key);
      }
    });
  });
  return out;
}

at::Tensor apply_mask(const at::Tensor& x, double p, const DropoutKey& key) {
  if (x.device().is_cpu()) return apply_on_cpu(x, p, key);
  return x * dropout_mask_by_tensor_operations(x, p, key) / (1.0 - p);
}

class KeyedDropout : public torch::autograd::Function<KeyedDropout> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            double p, std::int64_t seed, std::int64_t step, std::int64_t site,
                            std::int64_t first_row) {
    context->saved_data["p"] = p;
    context->saved_data["key"] = std::vector<std::int64_t>{seed, step, site, first_row};
    return apply_mask(x, p, key_of({seed, step, site, first_row}));
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const DropoutKey key = key_of(context->saved_data["key"].toIntVector());
    return {apply_mask(gradients[0], context->saved_data["p"].toDouble(), key), {}, {}, {}, {}, {}};
  }

 private:
  static DropoutKey key_of(const std::vector<std::int64_t>& values) {
    return {static_cast<std::uint64_t>(values[0]), values[1], static_cast<std::uint32_t>(values[2]),
            values[3]};
  }
};

}  // namespace

at::Tensor keyed_dropout(const at::Tensor& x, double p, const DropoutKey& key) {
  if (p <= 0.0) return x;
  return KeyedDropout::apply(x, p, static_cast<std::int64_t>(key.seed), key.step,
                             std::int64_t{key.site}, key.first_row);
}

at::Tensor dropout_mask_by_tensor_operations(const at::Tensor& like, double p,
                                             const DropoutKey& key) {
  const std::int64_t rows = like.dim() == 0 ? 1 : like.size(0);
  const std::int64_t row_elements = rows == 0 ? 0 : like.numel() / rows;
  const std::int64_t blocks = (row_elements + 3) / 4;
  const auto options = like.options().dtype(at::kLong);
  constexpr std::int64_t kLow = 0xFFFFFFFF;
  // 32-bit values in int64 tensors. A product of two of them needs 64 bits: split one factor into
  // 16-bit halves.
  const auto multiply = [](const at::Tensor& a, std::uint32_t multiplier) {
    const at::Tensor low = (a & 0xFFFF) * static_cast<std::int64_t>(multiplier);
    const at::Tensor high =
        a.__rshift__(16) * static_cast<std::int64_t>(multiplier) + low.__rshift__(16);
    return std::pair(high.__rshift__(16),
                     (high & 0xFFFF).__lshift__(16) | (low & 0xFFFF));  // upper, lower half
  };
  at::Tensor c0 = at::arange(blocks, options).expand({rows, blocks});
  at::Tensor c1 =
      ((at::arange(rows, options) + key.first_row) & kLow).unsqueeze(1).expand({rows, blocks});
  at::Tensor c2 = at::full({rows, blocks}, std::int64_t{key.site}, options);
  at::Tensor c3 = at::full({rows, blocks}, key.step & kLow, options);
  auto key0 = static_cast<std::uint32_t>(key.seed),
       key1 = static_cast<std::uint32_t>(key.seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const auto [upper0, lower0] = multiply(c0, kPhiloxMultiplier0);
    const auto [upper1, lower1] = multiply(c2, kPhiloxMultiplier1);
    c0 = upper1.__xor__(c1).__xor__(static_cast<std::int64_t>(key0));
    c2 = upper0.__xor__(c3).__xor__(static_cast<std::int64_t>(key1));
    c1 = lower1;
    c3 = lower0;
    key0 += kPhiloxWeyl0;
    key1 += kPhiloxWeyl1;
  }
  const at::Tensor bits =
      at::stack({c0, c1, c2, c3}, 2).reshape({rows, blocks * 4}).narrow(1, 0, row_elements);
  return bits.lt(static_cast<std::int64_t>(threshold(p)))
      .to(like.scalar_type())
      .reshape(like.sizes());
}

}  // namespace tessera
