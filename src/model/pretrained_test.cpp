#include "model/pretrained.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>

#include "base/error.h"
#include "base/temporary_directory.h"
#include "formats/safetensors.h"

namespace tessera {
namespace {

const Path kTiny = Path(TESSERA_SHARED_DATA) / "gpt2_tiny";

const std::string kConfig =
    R"({"model_type": "gpt2", "vocab_size": 131, "n_positions": 20, "n_embd": 24, "n_layer": 2,
        "n_head": 3, "layer_norm_epsilon": 1e-05, "eos_token_id": 98, "resid_pdrop": 0.2})";

std::string with(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

// Memory for a chain's parameters, as parallel/ would give it.
std::map<std::string, at::Tensor> allocate(Chain& chain) {
  std::map<std::string, at::Tensor> memory;
  for (const auto& unit : chain.units) {
    for (const ParameterSpec& spec : unit->parameters()) {
      memory[spec.name] = *spec.slot = at::empty(spec.shape, at::kFloat);
    }
  }
  for (const Tie& tie : chain.ties) *tie.user_slot = memory.at(tie.owner);
  return memory;
}

Error error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  return Error(ErrorKind::kInternal, "nothing was thrown");
}

TEST(Pretrained, ReadsHuggingFacesConfiguration) {
  const Gpt2Shape shape = parse_hugging_face_config(kConfig, "config.json");
  EXPECT_EQ(shape.vocab_size, 131);
  EXPECT_EQ(shape.padded_vocab_size, 131);
  EXPECT_EQ(shape.n_positions, 20);
  EXPECT_EQ(shape.n_embd, 24);
  EXPECT_EQ(shape.n_layer, 2);
  EXPECT_EQ(shape.n_head, 3);
  EXPECT_EQ(shape.layer_norm_epsilon, 1e-5);
  EXPECT_EQ(shape.resid_dropout, 0.2);
  EXPECT_EQ(shape.embd_dropout, 0.1);  // GPT2Config's default
  EXPECT_TRUE(shape.tie_head);
  EXPECT_EQ(parse_end_of_text_id(kConfig, "config.json"), 98);
  EXPECT_EQ(parse_end_of_text_id("{}", "config.json"), std::nullopt);
  EXPECT_EQ(parse_end_of_text_id(R"({"eos_token_id": [7, 8]})", "config.json"), 7);
}

TEST(Pretrained, ConfigurationSurvivesWritingAndReading) {
  Gpt2Shape shape;
  shape.n_layer = 3;
  shape.vocab_size = 1000;
  shape.padded_vocab_size = 1024;
  shape.layer_norm_epsilon = 2e-6;
  shape.attn_dropout = 0.25;
  shape.tie_head = false;
  const std::string text = hugging_face_config(shape, 999);
  const Gpt2Shape back = parse_hugging_face_config(text, "config.json");
  EXPECT_EQ(back.n_layer, 3);
  EXPECT_EQ(back.vocab_size, 1000);
  EXPECT_EQ(back.padded_vocab_size, 1024);
  EXPECT_EQ(back.layer_norm_epsilon, 2e-6);
  EXPECT_EQ(back.attn_dropout, 0.25);
  EXPECT_EQ(back.embd_dropout, 0);
  EXPECT_FALSE(back.tie_head);
  EXPECT_EQ(parse_end_of_text_id(text, ""), 999);
  EXPECT_EQ(parse_end_of_text_id(hugging_face_config(shape, -1), ""), std::nullopt);
  EXPECT_NE(text.find("\"architectures\": [\n    \"GPT2LMHeadModel\"\n  ]"), std::string::npos)
      << text;
}

TEST(Pretrained, RefusesWhatWouldComputeSomethingElse) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"("model_type": "llama")", "llama"},
      {R"("model_type": "gpt2", "activation_function": "relu")", "relu"},
      {R"("model_type": "gpt2", "n_inner": 48)", "n_inner"},
      {R"("model_type": "gpt2", "scale_attn_weights": false)", "scale_attn_weights"},
      {R"("model_type": "gpt2", "scale_attn_by_inverse_layer_idx": true)", "inverse_layer_idx"},
      {R"("model_type": "gpt2", "add_cross_attention": true)", "add_cross_attention"},
      {R"("model_type": "gpt2", "embd_pdrop": 1.5)", "embd_pdrop"},
      {R"("model_type": "gpt2", "tie_word_embeddings": 1)", "tie_word_embeddings"},
      {R"("model_type": "gpt2", "tessera_vocab_size": 132)", "132"},
  };
  for (const auto& [text, named] : cases) {
    const Error error = error_of([&, change = text] {
      parse_hugging_face_config(with(kConfig, R"("model_type": "gpt2")", change), "x/config.json");
    });
    EXPECT_EQ(error.kind(), ErrorKind::kConfig) << named;
    EXPECT_NE(std::string(error.what()).find(named), std::string::npos) << error.what();
    EXPECT_EQ(error.where(), "x/config.json");
  }
  for (const char* value : {"0", "-3", "2.5", "\"24\"", "99999999999", "25"}) {
    const std::string text = with(kConfig, R"("n_embd": 24)", R"("n_embd": )" + std::string(value));
    EXPECT_EQ(error_of([&] { parse_hugging_face_config(text, ""); }).kind(), ErrorKind::kConfig)
        << value;
  }
  EXPECT_EQ(error_of([] { parse_hugging_face_config("{", ""); }).kind(), ErrorKind::kCorrupt);
  EXPECT_EQ(error_of([] { parse_hugging_face_config("[]", ""); }).kind(), ErrorKind::kCorrupt);
  const TemporaryDirectory empty;
  EXPECT_EQ(error_of([&] { read_hugging_face_config(empty.path()); }).kind(), ErrorKind::kIo);
}

class PretrainedTiny : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(kTiny)) GTEST_SKIP() << kTiny << " is not there";
  }

  // A folder as transformers' save_pretrained writes it.
  void make_folder(const std::string& weights) {
    std::filesystem::copy_file(kTiny / weights, folder_.path() / "model.safetensors",
                               std::filesystem::copy_options::overwrite_existing);
  }

  static std::vector<TensorData> load_data(const SafetensorsFile& file) {
    std::vector<TensorData> tensors;
    for (const TensorInfo& info : file.tensors()) {
      tensors.push_back({{info.name, info.dtype, info.shape}, file.bytes(info)});
    }
    return tensors;
  }

  // Replaces the folder's weights by `tensors`.
  void write(const std::vector<TensorData>& tensors) {
    write_safetensors(*files_, folder_.path() / "model.safetensors", tensors);
  }

  Error reading_error() {
    Chain chain = make_gpt2(shape_);
    bool copied = false;
    const Error error = error_of([&] {
      read_weights(folder_.path(), chain, [&](const std::string&) {
        copied = true;
        return at::Tensor();
      });
    });
    EXPECT_FALSE(copied);
    return error;
  }

  TemporaryDirectory folder_;
  std::unique_ptr<FileSystem> files_ = make_posix_file_system();
  Gpt2Shape shape_ = parse_hugging_face_config(kConfig, "");
};

at::Tensor reference_tensor(const SafetensorsFile& file, const char* name) {
  const TensorInfo* info = file.find(name);
  const auto type = info->dtype == Dtype::kF64   ? at::kDouble
                    : info->dtype == Dtype::kI32 ? at::kInt
                                                 : at::kLong;
  at::Tensor tensor = at::empty(info->shape, type);
  std::memcpy(tensor.data_ptr(), file.bytes(*info).data(), file.bytes(*info).size());
  return tensor;
}

// Largest difference as a part of the largest value.
double logits_error(Chain& chain, const SafetensorsFile& reference, const char* ids_name) {
  const at::NoGradGuard no_grad;
  BatchContext context;
  context.ids = reference_tensor(reference, ids_name).to(at::kLong);
  context.mode = Mode::kEvaluate;
  at::Tensor hidden;
  for (const auto& unit : chain.units) hidden = unit->forward(hidden, context);
  const at::Tensor expected = reference_tensor(reference, "logits");
  const at::Tensor actual = chain.head()
                                .logits(hidden.reshape({-1, hidden.size(2)}))
                                .to(at::kDouble)
                                .view(expected.sizes());
  const auto* a = actual.data_ptr<double>();
  const auto* b = expected.data_ptr<double>();
  double worst = 0, largest = 0;
  for (std::int64_t i = 0; i < expected.numel(); ++i) {
    worst = std::max(worst, std::abs(a[i] - b[i]));
    largest = std::max(largest, std::abs(b[i]));
  }
  return worst / largest;
}

TEST_F(PretrainedTiny, LogitsEqualTheReferenceInDoublePrecision) {
  struct Case {
    const char *weights, *reference, *ids;
    Gpt2Shape shape;
  };
  Gpt2Shape random = shape_;
  random.vocab_size = random.padded_vocab_size = 1000;
  random.n_positions = 512;
  random.n_embd = 32;
  random.n_layer = 5;
  random.n_head = 4;
  const std::vector<Case> cases = {
      // Names without the prefix "transformer.", and with it.
      {"tiny_random_gpt2.safetensors", "tiny_random_gpt2_ref.safetensors", "input_ids", random},
      {"tiny_biased_gpt2.safetensors", "tiny_biased_gpt2_ref.safetensors", "input_ids", shape_}};
  for (const Case& example : cases) {
    SCOPED_TRACE(example.weights);
    make_folder(example.weights);
    Chain chain = make_gpt2(example.shape);
    auto memory = allocate(chain);
    read_weights(folder_.path(), chain, [&](const std::string& name) { return memory.at(name); });
    EXPECT_LT(logits_error(chain, SafetensorsFile(kTiny / example.reference), example.ids), 1e-5);
  }
}

TEST_F(PretrainedTiny, ConvertsOtherPrecisionsAndIgnoresBuffers) {
  const SafetensorsFile original(kTiny / "tiny_biased_gpt2.safetensors");
  for (const auto& [dtype, type] : {std::pair{Dtype::kF64, at::kDouble},
                                    {Dtype::kF16, at::kHalf},
                                    {Dtype::kBF16, at::kBFloat16}}) {
    std::vector<at::Tensor> kept;
    std::vector<TensorData> tensors = load_data(original);
    for (TensorData& tensor : tensors) {
      kept.push_back(at::from_blob(const_cast<std::byte*>(tensor.bytes.data()), tensor.spec.shape,
                                   at::TensorOptions().dtype(at::kFloat))
                         .to(type));
      tensor.spec.dtype = dtype;
      tensor.bytes = {static_cast<const std::byte*>(kept.back().data_ptr()),
                      static_cast<std::size_t>(kept.back().nbytes())};
    }
    // The buffers that older versions of transformers saved, and the copy of the tied head.
    const std::byte buffer[1] = {};
    tensors.push_back({{"transformer.h.0.attn.bias", Dtype::kU8, {1, 1, 1, 1}}, buffer});
    TensorData head = tensors.front();
    for (const TensorData& tensor : tensors) {
      if (tensor.spec.name == "transformer.wte.weight") head = tensor;
    }
    head.spec.name = "lm_head.weight";
    tensors.push_back(head);
    write(tensors);
    Chain chain = make_gpt2(shape_);
    auto memory = allocate(chain);
    read_weights(folder_.path(), chain, [&](const std::string& name) { return memory.at(name); });
    for (std::size_t i = 0; i < kept.size(); ++i) {
      const at::Tensor& actual = memory.at(tensors[i].spec.name);
      EXPECT_EQ(actual.scalar_type(), at::kFloat);
      EXPECT_TRUE(actual.equal(kept[i].to(at::kFloat))) << tensors[i].spec.name;
    }
  }
}

TEST_F(PretrainedTiny, ListsAllThatDoesNotFit) {
  const SafetensorsFile original(kTiny / "tiny_biased_gpt2.safetensors");
  std::vector<TensorData> tensors = load_data(original);
  for (TensorData& tensor : tensors) {
    if (tensor.spec.name == "transformer.ln_f.bias") tensor.spec.name = "transformer.ln_f.offset";
    if (tensor.spec.name == "transformer.h.0.attn.c_proj.weight") tensor.spec.shape = {48, 12};
  }
  write(tensors);
  const Error error = reading_error();
  EXPECT_EQ(error.kind(), ErrorKind::kCorrupt);
  const std::string message = error.what();
  EXPECT_NE(message.find("missing tensors: transformer.ln_f.bias"), std::string::npos) << message;
  EXPECT_NE(message.find("unexpected tensors: transformer.ln_f.offset"), std::string::npos)
      << message;
  EXPECT_NE(message.find("(48, 12) instead of (24, 24)"), std::string::npos) << message;
}

TEST_F(PretrainedTiny, NoWeightsAndBrokenWeightsAreErrors) {
  EXPECT_EQ(reading_error().kind(), ErrorKind::kIo);
  files_->create(folder_.path() / "model.safetensors")->write(std::string_view("nothing"));
  EXPECT_EQ(reading_error().kind(), ErrorKind::kCorrupt);
}

}  // namespace
}  // namespace tessera
