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
constexpr std::string_view kTokenizerFolder = "tokenizer/";

// Target name -> name in the checkpoint. What only Tessera reads stays behind.
std::map<std::string, std::string> small_files(const CheckpointReader& checkpoint) {
  std::map<std::string, std::string> chosen;
  for (const std::string& name : checkpoint.files()) {
    if (name == kStateName || name == kConfigName || name == kInfoName) continue;
    const bool of_tokenizer = name.starts_with(kTokenizerFolder);
    const std::string target = of_tokenizer ? name.substr(kTokenizerFolder.size()) : name;
    if (target == kWeightsName || !chosen.emplace(target, name).second) {
      throw Error(ErrorKind::kCorrupt,
                  "a model's folder cannot hold " + name + " beside another file of that name",
                  checkpoint.path().string());
    }
  }
  return chosen;
}

// Files of a tokenizer, and of models that other programs have saved.
bool belongs_to_a_model(std::string_view name) {
  constexpr std::array names = {"model.safetensors",
                                "config.json",
                                "generation_config.json",
                                "tokenizer.json",
                                "tokenizer_config.json",
                                "special_tokens_map.json",
                                "vocab.json",
                                "merges.txt",
                                "tessera_tokenizer.json"};
  return std::find(names.begin(), names.end(), name) != names.end();
}

void require_replaceable(FileSystem& files, const Path& folder,
                         const std::map<std::string, std::string>& ours) {
  if (!files.exists(folder)) return;
  if (!files.is_directory(folder)) {
    throw Error(ErrorKind::kIo, "cannot write a model: a file stands where its folder must be",
                folder.string(), "Move it away, or choose another folder.");
  }
  for (const std::string& name : files.list(folder)) {
    if (ours.contains(name) || belongs_to_a_model(name)) continue;
    throw Error(ErrorKind::kIo,
                "cannot write a model: the folder holds something else as well: " + name,
                folder.string(), "Move that away, or choose another folder.");
  }
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

void write_unified_model(const CheckpointReader& checkpoint, FileSystem& files,
                         const Path& folder) {
  // "runs/a/model/" means the folder itself.
  const Path target = folder.has_filename() ? folder : folder.parent_path();
  const Path parent = target.has_parent_path() ? target.parent_path() : Path(".");
  const Path visible = parent / target.filename();
  const std::map<std::string, std::string> small = small_files(checkpoint);
  if (!small.contains("config.json")) {
    throw Error(ErrorKind::kCorrupt, "the checkpoint holds no config.json, which a model needs",
                checkpoint.path().string());
  }
  create_durably(files, parent);
  settle_replacement(files, visible);
  require_replaceable(files, visible, small);
  StagedFolder staged(files, visible);
  write_weights(checkpoint, staged);
  for (const auto& [name, source] : small) staged.write(name, checkpoint.file(source));
  staged.commit();
}

}  // namespace tessera
