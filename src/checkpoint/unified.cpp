#include "checkpoint/unified.h"

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "checkpoint/manifest.h"
#include "checkpoint/staging.h"

namespace tessera {
namespace {

constexpr std::size_t kBufferBytes = std::size_t{4} << 20;
constexpr char kWeightsName[] = "model.safetensors";
constexpr char kRecordName[] =
    "tessera_model.json";  // {"step": 40}: made here, of which checkpoint
constexpr std::string_view kTokenizerFolder = "tokenizer/";

// Target name -> name in the checkpoint. What only Tessera reads stays behind.
std::map<std::string, std::string> small_files(const CheckpointReader& checkpoint) {
  std::map<std::string, std::string> chosen;
  for (const std::string& name : checkpoint.files()) {
    if (name == kStateName || name == kConfigName || name == kInfoName) continue;
    const bool of_tokenizer = name.starts_with(kTokenizerFolder);
    const std::string target = of_tokenizer ? name.substr(kTokenizerFolder.size()) : name;
    if (target == kWeightsName || target == kRecordName || !chosen.emplace(target, name).second) {
      throw Error(ErrorKind::kCorrupt,
                  "a model's folder cannot hold " + name + " beside another file of that name",
                  checkpoint.path().string());
    }
  }
  return chosen;
}

// Files of a tokenizer, and of models that other programs have saved. The record is last: what
// lacks it is not known to be ours.
constexpr std::array kNamesOfAModel = {"config.json",
                                       kWeightsName,
                                       "generation_config.json",
                                       "tokenizer.json",
                                       "tokenizer_config.json",
                                       "special_tokens_map.json",
                                       "vocab.json",
                                       "merges.txt",
                                       "tessera_tokenizer.json",
                                       kRecordName};

bool belongs_to_a_model(std::string_view name) {
  return std::find(kNamesOfAModel.begin(), kNamesOfAModel.end(), name) != kNamesOfAModel.end();
}

std::string record_of(std::int64_t step) { return "{\"step\": " + std::to_string(step) + "}\n"; }

// "runs/a/model/" means the folder itself.
Path without_slash(const Path& folder) {
  const Path target = folder.has_filename() ? folder : folder.parent_path();
  return (target.has_parent_path() ? target.parent_path() : Path(".")) / target.filename();
}

void write_weights(const CheckpointReader& checkpoint, StagedFolder& staged) {
  std::vector<TensorSpec> specs = checkpoint.tensors("model");
  if (specs.empty())
    throw Error(ErrorKind::kCorrupt, "the checkpoint holds no model", checkpoint.path().string());
  // As the layout has them, so that the file is written from its start to its end.
  std::stable_sort(specs.begin(), specs.end(), [](const TensorSpec& a, const TensorSpec& b) {
    return dtype_bytes(a.dtype) > dtype_bytes(b.dtype);
  });
  const auto file = staged.create(kWeightsName);
  file->write(plan_safetensors(specs).header);
  std::vector<std::byte> buffer(kBufferBytes);
  for (const TensorSpec& spec : specs) {
    const std::size_t width = dtype_bytes(spec.dtype);
    const std::int64_t count = *element_count(spec.shape);
    const auto step = static_cast<std::int64_t>(kBufferBytes / width);
    for (std::int64_t begin = 0; begin < count; begin += step) {
      const std::int64_t end = std::min(count, begin + step);
      const auto part = std::span(buffer).first(static_cast<std::size_t>(end - begin) * width);
      checkpoint.read_range(spec.name, begin, end, part);
      file->write(part);
    }
  }
  file->sync();
  file->close();
}

}  // namespace

void require_replaceable_model(FileSystem& files, const Path& folder) {
  constexpr char kOrNoModel[] = " away, or set checkpoint.unified_model=false.";
  if (!files.exists(folder)) return;
  if (!files.is_directory(folder)) {
    throw Error(ErrorKind::kIo,
                "the model of the run cannot be written: a file stands where its folder must be",
                folder.string(), "Move it" + std::string(kOrNoModel));
  }
  for (const std::string& name : files.list(folder)) {
    if (belongs_to_a_model(name)) continue;
    throw Error(ErrorKind::kIo,
                "the model of the run cannot be written: its folder holds something else as "
                "well: " +
                    name,
                folder.string(), "Move " + (folder / name).string() + kOrNoModel);
  }
}

bool remove_unified_model(FileSystem& files, const Path& folder,
                          const std::optional<std::int64_t>& keep) {
  const Path visible = without_slash(folder);
  settle_replacement(files, visible);
  if (!files.exists(visible / kRecordName)) return false;
  if (keep.has_value() && files.read(visible / kRecordName) == record_of(*keep)) return false;
  for (const char* name : kNamesOfAModel) files.remove_all(visible / name);
  if (files.list(visible).empty()) files.remove_all(visible);
  files.sync_directory(visible.parent_path());
  return true;
}

void write_unified_model(const CheckpointReader& checkpoint, FileSystem& files,
                         const Path& folder) {
  const Path visible = without_slash(folder);
  const std::map<std::string, std::string> small = small_files(checkpoint);
  if (!small.contains("config.json")) {
    throw Error(ErrorKind::kCorrupt, "the checkpoint holds no config.json, which a model needs",
                checkpoint.path().string());
  }
  create_durably(files, visible.parent_path());
  settle_replacement(files, visible);
  require_replaceable_model(files, visible);
  StagedFolder staged(files, visible);
  write_weights(checkpoint, staged);
  for (const auto& [name, source] : small) staged.write(name, checkpoint.file(source));
  staged.write(kRecordName, record_of(checkpoint.step()));
  staged.commit();
}

}  // namespace tessera
