#include "train/load_model.h"

#include <ATen/Parallel.h>

#include <array>
#include <chrono>
#include <utility>

#include "base/error.h"
#include "base/machine.h"
#include "base/text_format.h"
#include "checkpoint/catalog.h"
#include "checkpoint/reader.h"
#include "model/pretrained.h"
#include "train/model_state.h"

namespace tessera {

namespace {

// Where a model's files were found. A checkpoint is verified in full by opening it.
struct ModelSource {
  Path folder;
  std::optional<CheckpointReader> checkpoint;
};

[[noreturn]] void no_model(FileSystem& files, const Path& path) {
  const std::string remedy =
      "Name a run's folder such as runs/quickstart, a checkpoint's folder, or a Hugging Face "
      "folder.";
  if (!files.exists(path)) {
    throw Error(ErrorKind::kIo, "there is no model: no such folder", path.string(), remedy);
  }
  if (!files.is_directory(path)) {
    throw Error(ErrorKind::kIo, "there is no model: this is a file", path.string(),
                "Name the folder that it lies in.");
  }
  throw Error(ErrorKind::kIo,
              "there is no model: looked for manifest.json (a checkpoint), config.json with "
              "model.safetensors or model.safetensors.index.json (a Hugging Face folder), and "
              "checkpoints/step_… (a run's folder)",
              path.string(), remedy);
}

std::optional<CheckpointReader> open_of_run(FileSystem& files, const Path& folder, Log& log) {
  if (const auto best = best_checkpoint(files, folder, log)) {
    try {
      return CheckpointReader(best->path);
    } catch (const Error& error) {
      log.warning("the best checkpoint cannot be used, taking the newest: " +
                  std::string(error.what()));
    }
  }
  return find_newest_checkpoint(files, folder, log);
}

ModelSource find_model(FileSystem& files, const std::string& model, Log& log) {
  if (model.starts_with("hub:")) {
    throw Error(ErrorKind::kConfig, "this version cannot download models", model,
                "Download it with the hub's own client and name the folder.");
  }
  const Path path = model;
  if (!files.is_directory(path)) no_model(files, path);
  if (files.exists(path / "manifest.json")) {
    return {.folder = path, .checkpoint = CheckpointReader(path)};
  }
  if (files.exists(path / "config.json")) return {.folder = path, .checkpoint = {}};
  if (auto checkpoint = open_of_run(files, path / "checkpoints", log)) {
    Path folder = checkpoint->path();
    return {.folder = std::move(folder), .checkpoint = std::move(checkpoint)};
  }
  no_model(files, path);
}

void require_weights(FileSystem& files, const Path& folder) {
  for (const char* name : {"model.safetensors", "model.safetensors.index.json"}) {
    if (files.exists(folder / name)) return;
  }
  const bool pickled = files.exists(folder / "pytorch_model.bin");
  throw Error(ErrorKind::kIo,
              "there are no weights beside config.json: looked for model.safetensors and "
              "model.safetensors.index.json",
              folder.string(),
              pickled
                  ? "pytorch_model.bin is not read, for it can hold any program: save the model "
                    "again with save_pretrained(…, safe_serialization=True)."
                  : "Copy the weights there.");
}

std::string config_text(FileSystem& files, const ModelSource& source) {
  if (source.checkpoint) return std::string(source.checkpoint->file("config.json"));
  require_weights(files, source.folder);
  return files.read(source.folder / "config.json");
}

bool has_tokenizer(FileSystem& files, const Path& folder) {
  constexpr std::array names = {"tokenizer.json", "vocab.json", "merges.txt",
                                "encoder.json",   "vocab.bpe",  "tessera_tokenizer.json"};
  for (const char* name : names) {
    if (files.exists(folder / name)) return true;
  }
  return false;
}

std::unique_ptr<const Tokenizer> find_tokenizer(FileSystem& files, const Path& folder,
                                                const std::optional<Path>& named) {
  if (named) return load_tokenizer(*named);
  for (const Path& candidate : {folder / "tokenizer", folder}) {
    if (has_tokenizer(files, candidate)) return load_tokenizer(candidate);
  }
  return nullptr;
}

// Embeddings are often padded to a multiple of a power of two, with rows that no token has.
bool may_be_padding(std::int64_t rows, std::int64_t tokens) {
  return rows % 8 == 0 && rows - tokens < 128;
}

void check_vocabulary(const LoadedModel& model, const std::optional<Path>& named) {
  if (model.tokenizer == nullptr) return;
  const std::int64_t tokens = model.tokenizer->vocab_size(), rows = model.shape.vocab_size;
  if (tokens == rows || (tokens < rows && may_be_padding(rows, tokens))) return;
  throw Error(named ? ErrorKind::kConfig : ErrorKind::kCorrupt,
              "the tokenizer does not belong to the model: it has " + format_count(tokens) +
                  " tokens and the model " + format_count(rows),
              (named ? *named : model.folder).string(),
              "Use the tokenizer that the model was trained with.");
}

Precision inference_precision(const std::string& name, const at::Device& device) {
  if (name == "auto" && device.is_cpu()) {
    return {at::kFloat, false, "f32", "auto: results are those of the stored weights"};
  }
  return resolve_precision(name, device);
}

void create_executor(LoadedModel& model) {
  model.executor = std::make_unique<Executor>(
      model.chain, model.objective, nullptr, one_process(*model.communicator),
      Executor::Options{.compute_dtype = model.precision.compute,
                        .device = model.device,
                        .clip = {},
                        .loss_scale = {},
                        .train = false,
                        .step = {}});
}

at::Tensor master_of(Executor& executor, const std::string& name) {
  for (const FlatUnit& unit : executor.units()) {
    if (at::Tensor tensor = unit.master(name); tensor.defined()) return tensor;
  }
  throw Error(ErrorKind::kInternal, "no unit has the parameter " + name);
}

// Memory is taken only once names and shapes of the weights are known to fit.
void fill_weights(const ModelSource& source, LoadedModel& model) {
  if (source.checkpoint) {
    for (const auto& unit : model.chain.units) {
      for (const ParameterSpec& spec : unit->parameters()) {
        const TensorSpec* stored = source.checkpoint->find(spec.name);
        if (stored == nullptr || stored->shape != spec.shape) {
          throw Error(ErrorKind::kCorrupt,
                      "config.json and the weights do not belong together: tensor " + spec.name +
                          (stored == nullptr ? " is missing" : " has another shape"),
                      source.folder.string());
        }
      }
    }
    create_executor(model);
    restore(*source.checkpoint, model.executor->units(), nullptr);
  } else {
    read_weights(source.folder, model.chain, [&](const std::string& name) {
      if (model.executor == nullptr) create_executor(model);
      return master_of(*model.executor, name);
    });
  }
  model.executor->weights_changed();
}

}  // namespace

const Tokenizer& LoadedModel::require_tokenizer() const {
  if (tokenizer != nullptr) return *tokenizer;
  throw Error(ErrorKind::kConfig,
              "the model has no tokenizer: looked for tokenizer.json, vocab.json with merges.txt, "
              "encoder.json with vocab.bpe and tessera_tokenizer.json there and in tokenizer/",
              folder.string(), "Name one with --tokenizer DIR.");
}

GenerationModel LoadedModel::generation_model() const {
  return {
      .executor = executor.get(),
      .tokenizer = tokenizer.get(),
      .cache_shape = {shape.n_layer, shape.n_head, shape.head_size(), precision.compute, device},
      .n_positions = shape.n_positions,
      .vocab_size = drawable_ids,
      .end_of_text = end_of_text};
}

Path find_model_folder(const std::string& model, Log& log) {
  const auto files = make_posix_file_system();
  ModelSource source = find_model(*files, model, log);
  if (!source.checkpoint) require_weights(*files, source.folder);
  return source.folder;
}

std::unique_ptr<LoadedModel> load_model(const LoadOptions& options, Log& log) {
  const auto begin = std::chrono::steady_clock::now();
  at::set_num_threads(machine_facts().usable_processors());
  const std::unique_ptr<FileSystem> files = make_posix_file_system();
  auto model = std::make_unique<LoadedModel>();
  model->device = resolve_device(options.device);
  model->precision = inference_precision(options.precision, model->device);
  const ModelSource source = find_model(*files, options.model, log);
  model->folder = source.folder;

  const std::string config = config_text(*files, source);
  const std::string place = (source.folder / "config.json").string();
  model->shape = parse_hugging_face_config(config, place);
  model->tokenizer = find_tokenizer(*files, source.folder, options.tokenizer);
  check_vocabulary(*model, options.tokenizer);
  model->drawable_ids = model->shape.vocab_size;
  model->end_of_text = parse_end_of_text_id(config, place);
  if (model->tokenizer != nullptr) {
    model->drawable_ids = std::min(model->drawable_ids, model->tokenizer->vocab_size());
    if (!model->end_of_text) model->end_of_text = model->tokenizer->end_of_text();
  }
  if (model->end_of_text && *model->end_of_text >= model->drawable_ids) model->end_of_text.reset();

  model->chain = make_gpt2(model->shape);
  model->communicator = make_single_process_communicator();
  fill_weights(source, *model);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  log.info("model " + source.folder.string() + ": " +
           format_short_count(static_cast<double>(parameter_count(model->shape))) +
           " parameters, context " + format_count(model->shape.n_positions) + ", " +
           model->precision.name + " on " + model->device.str() + " (" + model->precision.reason +
           "), loaded in " + format_fixed(seconds.count(), 1) + " s");
  return model;
}

}  // namespace tessera
