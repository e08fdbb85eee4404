#include "train/load_model.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "base/error.h"
#include "checkpoint/catalog.h"
#include "checkpoint/writer.h"
#include "formats/safetensors.h"
#include "train/tiny_lm_folder.h"

namespace tessera {
namespace {

class LoadModel : public ::testing::Test {
 protected:
  std::unique_ptr<LoadedModel> load(const Path& model, std::optional<Path> tokenizer = {}) {
    return load_model({.model = model.string(), .tokenizer = std::move(tokenizer)}, log_);
  }

  void expect_error(const Path& model, ErrorKind kind, const std::vector<std::string>& parts,
                    std::optional<Path> tokenizer = {}) {
    try {
      load(model, std::move(tokenizer));
      ADD_FAILURE() << "no error: " << parts.front();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), kind) << error.what();
      for (const std::string& part : parts) {
        EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
      }
    }
  }

  // A run's folder with checkpoints of the tiny model at these steps.
  void make_run(const Path& run, const std::vector<std::int64_t>& steps, std::int64_t best) {
    const SafetensorsFile weights(folder_.path() / "model.safetensors");
    CheckpointWriter writer(*folder_.files, {.folder = run / "checkpoints", .keep = 0}, log_);
    for (const std::int64_t step : steps) {
      CheckpointRequest request;
      request.step = step;
      request.groups = {{.stem = "model", .slices = {}}};
      for (const TensorInfo& tensor : weights.tensors()) {
        request.groups[0].slices.push_back({.name = tensor.name,
                                            .dtype = tensor.dtype,
                                            .shape = tensor.shape,
                                            .begin = 0,
                                            .end = *element_count(tensor.shape),
                                            .data = weights.bytes(tensor).data()});
      }
      request.state_json = "{}";
      request.files = {{"config.json", folder_.expected["config"].dump()}};
      for (TokenizerFile& file : make_byte_tokenizer(EndOfText::kAdded)->files()) {
        request.files.push_back({"tokenizer/" + file.name, std::move(file.content)});
      }
      if (step == best) request.best_loss = 1.0;
      writer.start(std::move(request));
      writer.finish();
    }
  }

  TinyLmFolder folder_;
  std::vector<std::string> lines_;
  Log log_{LogLevel::kNormal, [this](std::string_view line) { lines_.emplace_back(line); }};
};

TEST_F(LoadModel, ReadsAHuggingFaceFolder) {
  const auto model = load(folder_.path());
  EXPECT_EQ(model->shape.n_layer, 2);
  EXPECT_EQ(model->drawable_ids, 257);
  EXPECT_EQ(model->end_of_text, 256);
  EXPECT_EQ(model->precision.compute, at::kFloat);
  EXPECT_EQ(model->require_tokenizer().kind(), "byte");
  const SafetensorsFile file(folder_.path() / "model.safetensors");
  const auto bytes = file.bytes(*file.find("transformer.wpe.weight"));
  const at::Tensor loaded = model->executor->units()[0].master("transformer.wpe.weight");
  ASSERT_EQ(loaded.nbytes(), bytes.size());
  EXPECT_EQ(std::memcmp(loaded.data_ptr(), bytes.data(), bytes.size()), 0);
  ASSERT_EQ(lines_.size(), 1u);
  EXPECT_NE(lines_[0].find("f32 on cpu"), std::string::npos) << lines_[0];
}

TEST_F(LoadModel, FindsTheTokenizerInItsFolderOrWhereItIsNamed) {
  folder_.remove("tessera_tokenizer.json");
  EXPECT_EQ(load(folder_.path())->tokenizer, nullptr);
  EXPECT_EQ(load(folder_.path())->end_of_text, 256);  // config.json's
  const TemporaryDirectory elsewhere;
  make_byte_tokenizer(EndOfText::kAdded)->save(*folder_.files, elsewhere.path());
  EXPECT_NE(load(folder_.path(), elsewhere.path())->tokenizer, nullptr);
  make_byte_tokenizer(EndOfText::kAdded)->save(*folder_.files, folder_.path() / "tokenizer");
  EXPECT_NE(load(folder_.path())->tokenizer, nullptr);
  expect_error(folder_.path(), ErrorKind::kIo, {"nowhere"}, "/nowhere");
}

TEST_F(LoadModel, WithoutATokenizerTextIsAnErrorThatSaysHow) {
  folder_.remove("tessera_tokenizer.json");
  const auto model = load(folder_.path());
  try {
    model->require_tokenizer();
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    EXPECT_NE(std::string(error.what()).find("--tokenizer"), std::string::npos);
  }
}

TEST_F(LoadModel, AnotherVocabularyIsAnErrorWithBothNumbers) {
  const TemporaryDirectory elsewhere;
  make_byte_tokenizer(EndOfText::kNone)->save(*folder_.files, elsewhere.path());
  expect_error(folder_.path(), ErrorKind::kConfig, {"256", "257", elsewhere.path().string()},
               elsewhere.path());
  make_byte_tokenizer(EndOfText::kNone)->save(*folder_.files, folder_.path());
  expect_error(folder_.path(), ErrorKind::kCorrupt, {"256", "257"});
}

TEST_F(LoadModel, PaddedRowsOfAnEmbeddingAreNotDrawable) {
  const SafetensorsFile weights(folder_.path() / "model.safetensors");
  const auto with_rows = [&](std::int64_t rows) {
    const TemporaryDirectory padded;
    std::vector<std::byte> embedding(static_cast<std::size_t>(rows) * 16 * 4);
    std::vector<TensorData> tensors;
    for (const TensorInfo& info : weights.tensors()) {
      tensors.push_back({{info.name, info.dtype, info.shape}, weights.bytes(info)});
      if (info.name != "transformer.wte.weight") continue;
      std::memcpy(embedding.data(), tensors.back().bytes.data(), tensors.back().bytes.size());
      tensors.back() = {{info.name, info.dtype, {rows, 16}}, embedding};
    }
    write_safetensors(*folder_.files, padded.path() / "model.safetensors", tensors);
    auto config = folder_.expected["config"];
    config["vocab_size"] = rows;
    folder_.files->create(padded.path() / "config.json")->write(std::string_view(config.dump()));
    make_byte_tokenizer(EndOfText::kAdded)->save(*folder_.files, padded.path());
    const auto model = load(padded.path());
    EXPECT_EQ(model->shape.vocab_size, rows);  // all rows count in the softmax, as in transformers
    return model->drawable_ids;
  };
  EXPECT_EQ(with_rows(264), 257);
  EXPECT_EQ(with_rows(320), 257);
  EXPECT_THROW(with_rows(512), Error);
  EXPECT_THROW(with_rows(263), Error);
}

TEST_F(LoadModel, RunsGiveTheirBestCheckpointElseTheirNewest) {
  const TemporaryDirectory run;
  make_run(run.path(), {10, 20, 30}, 20);
  const Path checkpoints = run.path() / "checkpoints";
  const auto model = load(run.path());
  EXPECT_EQ(model->folder, checkpoints / checkpoint_name(20));
  EXPECT_EQ(model->require_tokenizer().vocab_size(), 257);
  EXPECT_EQ(load(checkpoints / checkpoint_name(10))->folder, checkpoints / checkpoint_name(10));

  // A damaged best one is passed over with a warning, a damaged newest one too.
  const auto damage = [&](std::int64_t step) {
    const Path file = checkpoints / checkpoint_name(step) / "model.safetensors";
    std::string text = folder_.files->read(file);
    text[text.size() / 2] = static_cast<char>(text[text.size() / 2] ^ 1);
    folder_.files->create(file)->write(std::string_view(text));
  };
  damage(20);
  lines_.clear();
  EXPECT_EQ(load(run.path())->folder, checkpoints / checkpoint_name(30));
  EXPECT_NE(lines_.front().find("warning: the best checkpoint cannot be used"), std::string::npos)
      << lines_.front();
  damage(30);
  EXPECT_EQ(load(run.path())->folder, checkpoints / checkpoint_name(10));
  expect_error(checkpoints / checkpoint_name(30), ErrorKind::kCorrupt, {"model.safetensors"});
  damage(10);
  expect_error(run.path(), ErrorKind::kCorrupt,
               {"none of 3 checkpoints is whole", "Restore one from a copy."});
}

TEST_F(LoadModel, MissingModelsListWhatWasLookedFor) {
  const TemporaryDirectory empty;
  expect_error(empty.path() / "none", ErrorKind::kIo, {"no such folder"});
  expect_error(
      empty.path(), ErrorKind::kIo,
      {"manifest.json", "config.json", "model.safetensors.index.json", "checkpoints/step_"});
  expect_error(folder_.path() / "model.safetensors", ErrorKind::kIo, {"this is a file"});
  std::filesystem::create_directory(empty.path() / "checkpoints");
  expect_error(empty.path(), ErrorKind::kIo, {"checkpoints/step_"});
  folder_.remove("model.safetensors");
  expect_error(folder_.path(), ErrorKind::kIo, {"no weights", "model.safetensors"});
  folder_.write("pytorch_model.bin", "x");
  expect_error(folder_.path(), ErrorKind::kIo, {"safe_serialization"});
  expect_error("hub:gpt2", ErrorKind::kConfig, {"cannot download", "hub:gpt2"});
  expect_error("", ErrorKind::kIo, {"no model"});
}

TEST_F(LoadModel, WeightsThatDoNotFitTakeNoMemory) {
  auto config = folder_.expected["config"];
  config["n_embd"] = 1 << 20;
  folder_.write("config.json", config.dump());
  expect_error(folder_.path(), ErrorKind::kCorrupt, {"wrong shapes"});
  folder_.write("config.json", "{");
  expect_error(folder_.path(), ErrorKind::kCorrupt, {"config.json"});
}

}  // namespace
}  // namespace tessera
