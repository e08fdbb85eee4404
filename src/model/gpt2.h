// GPT-2 as a chain of units: embedding, n blocks, head. Learned positions, pre-norm, tanh GELU,
// tied head, dropout keyed. Source of the method: Radford et al. 2019; tensor names and layouts as
// Hugging Face's GPT2LMHeadModel.
#pragma once

#include <cstdint>
#include <string>

#include "unit/unit.h"

namespace tessera {

struct Gpt2Shape {
  std::int64_t n_layer = 12, n_head = 12, n_embd = 768, n_positions = 1024;
  std::int64_t vocab_size = 50257;         // real tokens
  std::int64_t padded_vocab_size = 50257;  // rows of the embedding
  double layer_norm_epsilon = 1e-5;
  double init_std = 0.02;
  double embd_dropout = 0, attn_dropout = 0, resid_dropout = 0;
  bool tie_head = true;

  std::int64_t head_size() const { return n_embd / n_head; }
};

// Residual projections (attn.c_proj, mlp.c_proj) start with std init_std / sqrt(2 n_layer).
Chain make_gpt2(const Gpt2Shape& shape);

// Parameters by formula, tied ones once.
std::int64_t parameter_count(const Gpt2Shape& shape);
// Floating-point operations of forward and backward for one token at context length T: 6 per weight
// used in a matrix product (the projection included, embeddings and positions not) + 12 · n_layer ·
// n_embd · T / 2 of causal attention.
double flops_per_token(const Gpt2Shape& shape, std::int64_t block_size);

}  // namespace tessera
