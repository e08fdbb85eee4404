#include "model/pretrained.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "base/error.h"
#include "formats/safetensors.h"

namespace tessera {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kPrefix = "transformer.";
// transformers' GPT2Config takes these where config.json is silent.
constexpr double kDefaultDropout = 0.1;
constexpr std::int64_t kLargestSize = std::int64_t{1} << 31;

[[noreturn]] void refuse(const std::string& why, const std::string& place,
                         const std::string& remedy = {}) {
  throw Error(ErrorKind::kConfig, "the model cannot be used: " + why, place, remedy);
}

Json parse_json(const std::string& text, const std::string& place) {
  Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) {
    throw Error(ErrorKind::kCorrupt, "the model's configuration is not a JSON object", place,
                "Copy the file again from where the model came from.");
  }
  return json;
}

// Reads members of one config.json; a null member counts as absent, as it does for transformers.
class ConfigReader {
 public:
  ConfigReader(const Json& json, const std::string& place) : json_(json), place_(place) {}

  const Json* find(const char* key) const {
    const auto at = json_.find(key);
    return at == json_.end() || at->is_null() ? nullptr : &*at;
  }
  std::int64_t size(const char* key) const {
    const Json* value = find(key);
    if (value == nullptr) refuse(std::string("'") + key + "' is missing", place_);
    if (!value->is_number_integer() || *value <= 0 || *value > kLargestSize) {
      refuse(std::string("'") + key + "' is " + value->dump() + ", not a positive whole number",
             place_);
    }
    return value->get<std::int64_t>();
  }
  double number(const char* key, double fallback) const {
    const Json* value = find(key);
    if (value == nullptr) return fallback;
    if (!value->is_number()) {
      refuse(std::string("'") + key + "' is " + value->dump() + ", not a number", place_);
    }
    return value->get<double>();
  }
  bool flag(const char* key, bool fallback) const {
    const Json* value = find(key);
    if (value == nullptr) return fallback;
    if (!value->is_boolean()) {
      refuse(std::string("'") + key + "' is " + value->dump() + ", not true or false", place_);
    }
    return value->get<bool>();
  }
  std::string text(const char* key, const std::string& fallback) const {
    const Json* value = find(key);
    if (value == nullptr) return fallback;
    if (!value->is_string()) {
      refuse(std::string("'") + key + "' is " + value->dump() + ", not a text", place_);
    }
    return value->get<std::string>();
  }

 private:
  const Json& json_;
  const std::string& place_;
};

// What would make the same weights mean something else.
void check_computation(const ConfigReader& config, const Gpt2Shape& shape,
                       const std::string& place) {
  const std::string type = config.text("model_type", "gpt2");
  if (type != "gpt2") {
    refuse("model_type is '" + type + "'", place, "This version reads models of type gpt2.");
  }
  const std::string activation = config.text("activation_function", "gelu_new");
  if (activation != "gelu_new" && activation != "gelu_pytorch_tanh") {
    refuse("its activation_function is '" + activation + "'", place,
           "This version computes gelu_new (the tanh form of GELU).");
  }
  if (config.find("n_inner") != nullptr && config.size("n_inner") != 4 * shape.n_embd) {
    refuse("n_inner is " + std::to_string(config.size("n_inner")) + ", not 4 x n_embd", place);
  }
  if (!config.flag("scale_attn_weights", true)) refuse("scale_attn_weights is false", place);
  if (config.flag("scale_attn_by_inverse_layer_idx", false)) {
    refuse("scale_attn_by_inverse_layer_idx is true", place);
  }
  if (config.flag("add_cross_attention", false)) refuse("add_cross_attention is true", place);
  if (shape.n_embd % shape.n_head != 0) {
    refuse("n_embd " + std::to_string(shape.n_embd) + " is not divisible by n_head " +
               std::to_string(shape.n_head),
           place);
  }
}

void check_dropout(double value, const char* key, const std::string& place) {
  if (!(value >= 0 && value < 1)) refuse(std::string("'") + key + "' is not in [0, 1)", place);
}

at::ScalarType scalar_type(const TensorInfo& info, const std::string& place) {
  switch (info.dtype) {
    case Dtype::kF64: return at::kDouble;
    case Dtype::kF32: return at::kFloat;
    case Dtype::kF16: return at::kHalf;
    case Dtype::kBF16: return at::kBFloat16;
    default:
      throw Error(ErrorKind::kCorrupt,
                  "tensor '" + info.name + "' has dtype " + std::string(to_string(info.dtype)),
                  place, "Weights are read from F64, F32, F16 and BF16.");
  }
}

void copy_into(const at::Tensor& destination, const SafetensorsModel::Tensor& source,
               std::int64_t first, const std::string& place) {
  const at::TensorOptions options = at::TensorOptions().dtype(scalar_type(*source.info, place));
  const std::size_t element = dtype_bytes(source.info->dtype);
  const auto bytes = source.bytes.subspan(static_cast<std::size_t>(first) * element,
                                          static_cast<std::size_t>(destination.numel()) * element);
  if (reinterpret_cast<std::uintptr_t>(bytes.data()) % element == 0) {
    // The mapping is read-only and so is this use of it.
    destination.copy_(
        at::from_blob(const_cast<std::byte*>(bytes.data()), destination.sizes(), options));
    return;
  }
  at::Tensor aligned = at::empty(destination.sizes(), options);
  std::memcpy(aligned.data_ptr(), bytes.data(), bytes.size());
  destination.copy_(aligned);
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string text = "(";
  for (const std::int64_t size : shape)
    text += (text.size() > 1 ? ", " : "") + std::to_string(size);
  return text + ")";
}

// "missing: a, b, c and 7 more"
void append_list(std::string& message, const char* title, const std::vector<std::string>& items) {
  constexpr std::size_t kShown = 6;
  if (items.empty()) return;
  message += (message.empty() ? "" : "; ") + std::string(title) + ": ";
  for (std::size_t i = 0; i < std::min(items.size(), kShown); ++i) {
    message += (i > 0 ? ", " : "") + items[i];
  }
  if (items.size() > kShown) {
    message += " and " + std::to_string(items.size() - kShown) + " more";
  }
}

bool is_ignored(std::string_view name, bool tied) {
  const auto ends_with = [name](std::string_view end) { return name.ends_with(end); };
  return ends_with(".attn.bias") || ends_with(".attn.masked_bias") ||
         (tied && name == "lm_head.weight");
}

struct Match {
  std::string name;  // of the parameter
  SafetensorsModel::Tensor source;
};

std::vector<Match> match_all(const SafetensorsModel& model, const Chain& chain,
                             const std::string& place) {
  std::vector<Match> matches;
  std::vector<std::string> missing, wrong, unexpected, used;
  for (const auto& unit : chain.units) {
    for (const ParameterSpec& spec : unit->parameters()) {
      std::string name = spec.name;
      auto tensor = model.find(name);
      if (!tensor && name.starts_with(kPrefix)) {
        name.erase(0, kPrefix.size());
        tensor = model.find(name);
      }
      if (!tensor) {
        missing.push_back(spec.name);
        continue;
      }
      used.push_back(name);
      if (tensor->info->shape != spec.shape) {
        wrong.push_back(name + " is " + shape_text(tensor->info->shape) + " instead of " +
                        shape_text(spec.shape));
      }
      matches.push_back({spec.name, *tensor});
    }
  }
  std::sort(used.begin(), used.end());
  for (const std::string& name : model.names()) {
    if (!std::binary_search(used.begin(), used.end(), name) &&
        !is_ignored(name, !chain.ties.empty())) {
      unexpected.push_back(name);
    }
  }
  std::string message;
  append_list(message, "missing tensors", missing);
  append_list(message, "unexpected tensors", unexpected);
  append_list(message, "wrong shapes", wrong);
  if (!message.empty()) {
    throw Error(ErrorKind::kCorrupt, "the weights do not fit the model: " + message, place,
                "Check that config.json and the weights belong together.");
  }
  return matches;
}

}  // namespace

Gpt2Shape parse_hugging_face_config(const std::string& text, const std::string& place) {
  const Json json = parse_json(text, place);
  const ConfigReader config(json, place);
  Gpt2Shape shape;
  shape.n_layer = config.size("n_layer");
  shape.n_head = config.size("n_head");
  shape.n_embd = config.size("n_embd");
  shape.n_positions = config.size(config.find("n_positions") == nullptr ? "n_ctx" : "n_positions");
  shape.padded_vocab_size = config.size("vocab_size");
  shape.vocab_size = config.find("tessera_vocab_size") == nullptr
                         ? shape.padded_vocab_size
                         : config.size("tessera_vocab_size");
  shape.layer_norm_epsilon = config.number("layer_norm_epsilon", 1e-5);
  shape.init_std = config.number("initializer_range", 0.02);
  shape.embd_dropout = config.number("embd_pdrop", kDefaultDropout);
  shape.attn_dropout = config.number("attn_pdrop", kDefaultDropout);
  shape.resid_dropout = config.number("resid_pdrop", kDefaultDropout);
  shape.tie_head = config.flag("tie_word_embeddings", true);
  check_computation(config, shape, place);
  check_dropout(shape.embd_dropout, "embd_pdrop", place);
  check_dropout(shape.attn_dropout, "attn_pdrop", place);
  check_dropout(shape.resid_dropout, "resid_pdrop", place);
  if (shape.vocab_size > shape.padded_vocab_size) {
    refuse("tessera_vocab_size " + std::to_string(shape.vocab_size) + " is above vocab_size " +
               std::to_string(shape.padded_vocab_size),
           place);
  }
  if (!(shape.layer_norm_epsilon > 0)) refuse("'layer_norm_epsilon' is not above 0", place);
  return shape;
}

Gpt2Shape read_hugging_face_config(const Path& folder) {
  const Path path = folder / "config.json";
  return parse_hugging_face_config(make_posix_file_system()->read(path), path.string());
}

std::optional<std::int64_t> parse_end_of_text_id(const std::string& text,
                                                 const std::string& place) {
  const Json json = parse_json(text, place);
  const ConfigReader config(json, place);
  const Json* value = config.find("eos_token_id");
  if (value != nullptr && value->is_array() && !value->empty()) value = &value->front();
  if (value == nullptr || !value->is_number_integer() || *value < 0 || *value > kLargestSize) {
    return std::nullopt;
  }
  return value->get<std::int64_t>();
}

std::string hugging_face_config(const Gpt2Shape& shape, std::int64_t end_of_text_id) {
  Json json = {
      {"architectures", {"GPT2LMHeadModel"}},
      {"model_type", "gpt2"},
      {"activation_function", "gelu_new"},
      {"n_layer", shape.n_layer},
      {"n_head", shape.n_head},
      {"n_embd", shape.n_embd},
      {"n_positions", shape.n_positions},
      {"n_ctx", shape.n_positions},
      {"vocab_size", shape.padded_vocab_size},
      {"layer_norm_epsilon", shape.layer_norm_epsilon},
      {"initializer_range", shape.init_std},
      {"embd_pdrop", shape.embd_dropout},
      {"attn_pdrop", shape.attn_dropout},
      {"resid_pdrop", shape.resid_dropout},
      {"tie_word_embeddings", shape.tie_head},
      {"torch_dtype", "float32"},
      {"use_cache", true},
  };
  if (shape.vocab_size != shape.padded_vocab_size) json["tessera_vocab_size"] = shape.vocab_size;
  // null and not absent: transformers would take GPT-2's 50256.
  json["bos_token_id"] = end_of_text_id < 0 ? Json() : Json(end_of_text_id);
  json["eos_token_id"] = json["bos_token_id"];
  return json.dump(2) + "\n";
}

struct PretrainedWeights::State {
  State(const Path& source, const Chain& chain) : folder(source.string()), model(source) {
    for (Match& match : match_all(model, chain, folder)) {
      sources.emplace(std::move(match.name), match.source);
    }
  }
  std::string folder;
  SafetensorsModel model;
  std::map<std::string, SafetensorsModel::Tensor> sources;  // by the parameter's name
};

PretrainedWeights::PretrainedWeights(const Path& folder, const Chain& chain)
    : state_(std::make_unique<State>(folder, chain)) {}

PretrainedWeights::~PretrainedWeights() = default;

void PretrainedWeights::read(const std::string& name, std::int64_t first,
                             const at::Tensor& out) const {
  const auto source = state_->sources.find(name);
  if (source == state_->sources.end() || first < 0 ||
      first + out.numel() > element_count(source->second.info->shape)) {
    throw Error(ErrorKind::kInternal, "no such part of a parameter to read: " + name,
                state_->folder);
  }
  if (out.numel() > 0) copy_into(out, source->second, first, state_->folder);
}

void read_weights(const Path& folder, const Chain& chain,
                  const std::function<at::Tensor(const std::string& name)>& destination) {
  const PretrainedWeights weights(folder, chain);
  for (const auto& unit : chain.units) {
    for (const ParameterSpec& spec : unit->parameters()) {
      weights.read(spec.name, 0, destination(spec.name));
    }
  }
}

}  // namespace tessera
