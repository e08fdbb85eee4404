#include "model/gpt2.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/tril.h>

#include <cmath>
#include <utility>

#include "ops/attention.h"
#include "ops/dropout.h"
#include "ops/linear.h"

namespace tessera {
namespace {

using Kind = Initialisation::Kind;

// A unit's places where dropout is drawn; together with the unit's index they make a site.
enum class DropoutPlace : std::uint32_t {
  kEmbedding,
  kAttention,
  kAttentionResidual,
  kMlpResidual
};

DropoutKey dropout_key(const BatchContext& context, std::uint32_t unit_index, DropoutPlace place) {
  return {.seed = context.random.seed,
          .step = context.random.step,
          .site = unit_index * 8 + static_cast<std::uint32_t>(place),
          .first_row = context.random.first_row};
}

at::Tensor dropout(const at::Tensor& x, double p, const BatchContext& context,
                   std::uint32_t unit_index, DropoutPlace place) {
  if (context.mode != Mode::kTrain || p <= 0.0) return x;
  return keyed_dropout(x, p, dropout_key(context, unit_index, place));
}

struct LayerNorm {
  at::Tensor weight, bias;

  void declare(std::vector<ParameterSpec>& list, const std::string& prefix, std::int64_t width) {
    list.push_back(
        {.name = prefix + ".weight", .shape = {width}, .init = {Kind::kOnes}, .slot = &weight});
    list.push_back({.name = prefix + ".bias", .shape = {width}, .slot = &bias});
  }
  at::Tensor operator()(const at::Tensor& x, double epsilon) const {
    return at::layer_norm(x, {x.size(-1)}, weight, bias, epsilon);
  }
};

// Hugging Face's Conv1D: the weight is stored (in, out).
struct Linear {
  at::Tensor weight, bias;

  void declare(std::vector<ParameterSpec>& list, const std::string& prefix, std::int64_t in,
               std::int64_t out, double std, LinearRole role) {
    list.push_back({.name = prefix + ".weight",
                    .shape = {in, out},
                    .init = {Kind::kNormal, std},
                    .decay = true,
                    .role = role,
                    .slot = &weight});
    list.push_back({.name = prefix + ".bias", .shape = {out}, .role = role, .slot = &bias});
  }
  at::Tensor operator()(const at::Tensor& x) const {  // (B, T, in) -> (B, T, out)
    return linear(x.reshape({-1, x.size(-1)}), weight, bias)
        .view({x.size(0), x.size(1), weight.size(1)});
  }
  // The norm before it, whose result is not kept.
  at::Tensor after_norm(const at::Tensor& x, const LayerNorm& norm, double epsilon) const {
    return norm_linear(x.reshape({-1, x.size(-1)}), norm.weight, norm.bias, epsilon, weight, bias)
        .view({x.size(0), x.size(1), weight.size(1)});
  }
  at::Tensor after_gelu(const at::Tensor& x) const {
    return gelu_linear(x.reshape({-1, x.size(-1)}), weight, bias)
        .view({x.size(0), x.size(1), weight.size(1)});
  }
};

class Gpt2Embedding final : public Unit {
 public:
  explicit Gpt2Embedding(const Gpt2Shape& shape) : shape_(shape) {}

  const std::string& name() const override { return name_; }

  std::vector<ParameterSpec> parameters() override {
    return {{.name = "transformer.wte.weight",
             .shape = {shape_.padded_vocab_size, shape_.n_embd},
             .init = {Kind::kNormal, shape_.init_std},
             .decay = true,
             .slot = &tokens_},
            {.name = "transformer.wpe.weight",
             .shape = {shape_.n_positions, shape_.n_embd},
             .init = {Kind::kNormal, shape_.init_std},
             .decay = true,
             .slot = &positions_}};
  }

  at::Tensor forward(const at::Tensor&, const BatchContext& context) override {
    const at::Tensor position = context.positions.defined()
                                    ? embed(positions_, context.positions)
                                    : positions_.narrow(0, 0, context.ids.size(1)).unsqueeze(0);
    const at::Tensor hidden = embed(tokens_, context.ids) + position;  // (B, T, C)
    return dropout(hidden, shape_.embd_dropout, context, 0, DropoutPlace::kEmbedding);
  }

 private:
  Gpt2Shape shape_;
  std::string name_ = "embedding";
  at::Tensor tokens_, positions_;
};

class Gpt2Block final : public Unit {
 public:
  Gpt2Block(const Gpt2Shape& shape, std::int64_t layer)
      : shape_(shape), layer_(layer), name_("h." + std::to_string(layer)) {}

  const std::string& name() const override { return name_; }

  std::vector<ParameterSpec> parameters() override {
    const std::int64_t width = shape_.n_embd;
    const double std = shape_.init_std,
                 residual_std = std / std::sqrt(2.0 * static_cast<double>(shape_.n_layer));
    const std::string prefix = "transformer." + name_;
    std::vector<ParameterSpec> list;
    norm1_.declare(list, prefix + ".ln_1", width);
    qkv_.declare(list, prefix + ".attn.c_attn", width, 3 * width, std, LinearRole::kColumn);
    attention_out_.declare(list, prefix + ".attn.c_proj", width, width, residual_std,
                           LinearRole::kRow);
    norm2_.declare(list, prefix + ".ln_2", width);
    up_.declare(list, prefix + ".mlp.c_fc", width, 4 * width, std, LinearRole::kColumn);
    down_.declare(list, prefix + ".mlp.c_proj", 4 * width, width, residual_std, LinearRole::kRow);
    return list;
  }

  at::Tensor forward(const at::Tensor& hidden, const BatchContext& context) override {
    const double epsilon = shape_.layer_norm_epsilon;
    const std::uint32_t index = static_cast<std::uint32_t>(layer_) + 1;
    const auto normed = [&](const at::Tensor& input, const LayerNorm& norm, const Linear& linear) {
      return context.keep == Keep::kProducts ? linear.after_norm(input, norm, epsilon)
                                             : linear(norm(input, epsilon));
    };
    const at::Tensor x =
        hidden + dropout(attention(normed(hidden, norm1_, qkv_), context), shape_.resid_dropout,
                         context, index, DropoutPlace::kAttentionResidual);
    const at::Tensor mlp = down_.after_gelu(normed(x, norm2_, up_));
    return x + dropout(mlp, shape_.resid_dropout, context, index, DropoutPlace::kMlpResidual);
  }

 private:
  at::Tensor attention(const at::Tensor& projected, const BatchContext& context) {
    const std::int64_t batch = projected.size(0), length = projected.size(1), width = shape_.n_embd;
    // (B, T, 3C) -> three of (B, H, T, D). A split's backward is one copy; that of indices into a
    // permuted view would fill the whole gradient three times.
    const std::vector<at::Tensor> qkv = projected.split(width, 2);
    const auto heads = [&](const at::Tensor& part) {
      return part.view({batch, length, shape_.n_head, shape_.head_size()}).transpose(1, 2);
    };
    const at::Tensor query = heads(qkv[0]);
    at::Tensor key = heads(qkv[1]), value = heads(qkv[2]);
    if (context.cache != nullptr) {
      KvCache::Slot& slot = context.cache->slots[static_cast<std::size_t>(layer_)];
      const std::int64_t past = context.cache->length;
      slot.key.narrow(2, past, length).copy_(key);
      slot.value.narrow(2, past, length).copy_(value);
      key = slot.key.narrow(2, 0, past + length);
      value = slot.value.narrow(2, 0, past + length);
    }
    const at::Tensor mixed = attend(query, key, value, context).transpose(1, 2);  // (B, T, H, D)
    return attention_out_(mixed.reshape({batch, length, width}));
  }

  at::Tensor attend(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                    const BatchContext& context) const {
    const std::int64_t length = query.size(2), keys = key.size(2);
    at::Tensor mask = context.attention_mask;
    // One query sees all keys. Several queries after a cached past: the diagonal is shifted, which
    // is_causal cannot say.
    const bool causal = !mask.defined() && length > 1;
    if (context.mode == Mode::kTrain && shape_.attn_dropout > 0.0) {
      return attend_with_dropout(query, key, value, context, mask);
    }
    if (causal && keys != length) {
      mask = at::ones({length, keys}, query.options().dtype(at::kBool)).tril(keys - length);
    }
    return at::scaled_dot_product_attention(
        query, key, value, mask.defined() ? std::optional<at::Tensor>(mask) : std::nullopt, 0.0,
        causal && keys == length);
  }

  at::Tensor attend_with_dropout(const at::Tensor& query, const at::Tensor& key,
                                 const at::Tensor& value, const BatchContext& context,
                                 at::Tensor mask) const {
    const std::int64_t length = query.size(2), keys = key.size(2);
    if (!mask.defined()) {
      mask = at::ones({length, keys}, query.options().dtype(at::kBool)).tril(keys - length);
    }
    return attention_with_dropout(
        query, key, value, mask, shape_.attn_dropout,
        dropout_key(context, static_cast<std::uint32_t>(layer_) + 1, DropoutPlace::kAttention));
  }

  Gpt2Shape shape_;
  std::int64_t layer_;
  std::string name_;
  LayerNorm norm1_, norm2_;
  Linear qkv_, attention_out_, up_, down_;
};

class Gpt2Head final : public Head {
 public:
  explicit Gpt2Head(const Gpt2Shape& shape) : shape_(shape) {}

  const std::string& name() const override { return name_; }

  std::vector<ParameterSpec> parameters() override {
    std::vector<ParameterSpec> list;
    norm_.declare(list, "transformer.ln_f", shape_.n_embd);
    if (!shape_.tie_head) {
      list.push_back({.name = "lm_head.weight",
                      .shape = {shape_.padded_vocab_size, shape_.n_embd},
                      .init = {Kind::kNormal, shape_.init_std},
                      .decay = true,
                      .role = LinearRole::kColumn,
                      .slot = &projection_});
    }
    return list;
  }

  at::Tensor forward(const at::Tensor& hidden, const BatchContext&) override {
    return norm_(hidden, shape_.layer_norm_epsilon);
  }

  const at::Tensor& projection() const override { return projection_; }
  std::int64_t vocab_size() const override { return shape_.vocab_size; }
  at::Tensor* projection_slot() { return &projection_; }

 private:
  Gpt2Shape shape_;
  std::string name_ = "head";
  LayerNorm norm_;
  at::Tensor projection_;
};

}  // namespace

Chain make_gpt2(const Gpt2Shape& shape) {
  Chain chain;
  chain.units.push_back(std::make_unique<Gpt2Embedding>(shape));
  for (std::int64_t layer = 0; layer < shape.n_layer; ++layer) {
    chain.units.push_back(std::make_unique<Gpt2Block>(shape, layer));
  }
  auto head = std::make_unique<Gpt2Head>(shape);
  if (shape.tie_head) {
    chain.ties.push_back({.owner = "transformer.wte.weight",
                          .user_slot = head->projection_slot(),
                          .user_unit = chain.units.size()});
  }
  chain.units.push_back(std::move(head));
  return chain;
}

std::int64_t parameter_count(const Gpt2Shape& shape) {
  const std::int64_t width = shape.n_embd;
  const std::int64_t block = 12 * width * width + 13 * width;
  return shape.padded_vocab_size * width * (shape.tie_head ? 1 : 2) + shape.n_positions * width +
         shape.n_layer * block + 2 * width;
}

double flops_per_token(const Gpt2Shape& shape, std::int64_t block_size) {
  const auto width = static_cast<double>(shape.n_embd), layers = static_cast<double>(shape.n_layer);
  const double matrices =
      layers * 12 * width * width + static_cast<double>(shape.vocab_size) * width;
  return 6 * matrices + 6 * layers * width * static_cast<double>(block_size);
}

}  // namespace tessera
