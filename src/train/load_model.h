// A trained model by name, ready to compute. Owns: from a MODEL argument to weights, tokenizer,
// device and precision. Not: what is done with it (generate.h, evaluate.h).
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/file_system.h"
#include "base/log.h"
#include "inference/generator.h"
#include "model/causal_lm.h"
#include "model/gpt2.h"
#include "ops/device.h"
#include "parallel/executor.h"
#include "tokenizer/tokenizer.h"

namespace tessera {

struct LoadOptions {
  // A Hugging Face folder (config.json with model.safetensors, or with its index and shards), a
  // checkpoint's folder, or a run's folder: its best checkpoint, else its newest whole one.
  std::string model;
  std::optional<Path> tokenizer;  // a folder; default: the model's own
  std::string device = "auto";
  // auto: f32 on a CPU, so that results are those of the stored weights; on an accelerator as in
  // training. Else f32 | bf16 | f16.
  std::string precision = "auto";
};

// Not movable: the parts refer to each other.
struct LoadedModel {
  LoadedModel() = default;
  LoadedModel(const LoadedModel&) = delete;
  LoadedModel& operator=(const LoadedModel&) = delete;

  Path folder;  // where the weights lie
  Gpt2Shape shape;
  Chain chain;
  at::Device device = at::kCPU;
  Precision precision;
  CausalLmObjective objective;
  std::unique_ptr<Communicator> communicator;
  std::unique_ptr<Executor> executor;
  std::unique_ptr<const Tokenizer> tokenizer;  // null: the model has none and none was named
  std::optional<std::int64_t> end_of_text;     // config.json's, else the tokenizer's
  std::int64_t drawable_ids = 0;               // ids below it may be generated

  // Error{kConfig} that says how to name one, where there is none.
  const Tokenizer& require_tokenizer() const;
  GenerationModel generation_model() const;
};

// The folder of the weights that `model` names, as LoadOptions::model; a checkpoint in it is
// verified. Errors as load_model().
Path find_model_folder(const std::string& model, Log& log);

// Loads for inference: no gradients, no optimizer. Says in `log` what was loaded from where.
// Error{kIo} that lists what was looked for where there is no model; Error{kCorrupt} where it is
// damaged; Error{kConfig} for hub: names, for models of another kind, and where --tokenizer has
// another vocabulary; as resolve_device() and resolve_precision().
std::unique_ptr<LoadedModel> load_model(const LoadOptions& options, Log& log);

}  // namespace tessera
