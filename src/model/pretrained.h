// Finds and reads a model from a folder: Hugging Face GPT-2, or a checkpoint of Tessera (the same
// files and names). Owns: config.json and the names of tensors in both directions. Not: the
// container (formats/safetensors.h), which folder it is (train/load_model.h).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/file_system.h"
#include "model/gpt2.h"

namespace tessera {

// config.json of a GPT-2 model. Refuses (Error{kConfig}) what would compute something else: other
// activations, model types, scaled attention. Error{kIo} without the file, Error{kCorrupt} where it
// is not JSON. vocab_size is the number of rows of the embedding, unless a config.json of
// Tessera's says how many of them are real tokens.
Gpt2Shape read_hugging_face_config(const Path& folder);
// The same from the file's text; `place` stands in messages.
Gpt2Shape parse_hugging_face_config(const std::string& text, const std::string& place);

// eos_token_id of config.json (the first, where there are several); nothing where it has none.
std::optional<std::int64_t> parse_end_of_text_id(const std::string& text, const std::string& place);

// config.json that Hugging Face transformers and read_hugging_face_config() load; the same shape
// gives the same text.
std::string hugging_face_config(const Gpt2Shape& shape, std::int64_t end_of_text_id /* -1: none */);

// The parameters of a chain in a folder's safetensors files (single or sharded with an index),
// which stay mapped. F64, F32, F16 and BF16 are converted. Names with or without "transformer." are
// accepted; the buffers attn.bias and attn.masked_bias, and lm_head.weight of a tied model, are
// ignored.
class PretrainedWeights {
 public:
  // Missing or unexpected tensors and wrong shapes: Error{kCorrupt} that lists them.
  PretrainedWeights(const Path& folder, const Chain& chain);
  ~PretrainedWeights();

  // Elements of the parameter, counted row-major from `first`, as many as `out` has: f32, of any
  // shape and device.
  void read(const std::string& name, std::int64_t first, const at::Tensor& out) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// All of them, into what `destination` returns for a name.
void read_weights(const Path& folder, const Chain& chain,
                  const std::function<at::Tensor(const std::string& name)>& destination);

}  // namespace tessera
