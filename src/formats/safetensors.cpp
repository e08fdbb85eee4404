#include "formats/safetensors.h"

#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

struct DtypeFacts {
  Dtype dtype;
  std::string_view name;
  std::size_t bytes;
};

constexpr DtypeFacts kDtypes[] = {
    {Dtype::kF64, "F64", 8}, {Dtype::kI64, "I64", 8},        {Dtype::kU64, "U64", 8},
    {Dtype::kF32, "F32", 4}, {Dtype::kI32, "I32", 4},        {Dtype::kU32, "U32", 4},
    {Dtype::kF16, "F16", 2}, {Dtype::kBF16, "BF16", 2},      {Dtype::kI16, "I16", 2},
    {Dtype::kU16, "U16", 2}, {Dtype::kF8E4M3, "F8_E4M3", 1}, {Dtype::kF8E5M2, "F8_E5M2", 1},
    {Dtype::kI8, "I8", 1},   {Dtype::kU8, "U8", 1},          {Dtype::kBool, "BOOL", 1},
};

const DtypeFacts& facts(Dtype dtype) { return kDtypes[static_cast<std::size_t>(dtype)]; }

[[noreturn]] void corrupt_index(const Path& path, const std::string& reason) {
  throw Error(ErrorKind::kCorrupt, "cannot read the index of model shards: " + reason,
              path.string(), "Fetch or write the model again.");
}

// Tensor name -> name of the file that holds it.
std::map<std::string, std::string> read_index(const Path& path) {
  const MappedFile file(path);
  const auto json = nlohmann::json::parse(file.text(), nullptr, false);
  if (!json.is_object() || !json.contains("weight_map") || !json["weight_map"].is_object()) {
    corrupt_index(path, "it is not a JSON object with a weight_map");
  }
  std::map<std::string, std::string> shard_of;
  for (const auto& [name, shard] : json["weight_map"].items()) {
    if (!shard.is_string()) corrupt_index(path, "the file of tensor '" + name + "' is not text");
    const std::string text = shard.get<std::string>();
    // A name with folders in it could reach files outside the model's folder.
    if (text.empty() || text == "." || text == ".." ||
        text.find_first_of(std::string_view("/\\\0", 3)) != std::string::npos) {
      corrupt_index(path, "tensor '" + name + "' names a file outside the folder");
    }
    shard_of.emplace(name, text);
  }
  if (shard_of.empty()) corrupt_index(path, "its weight_map is empty");
  return shard_of;
}

}  // namespace

std::size_t dtype_bytes(Dtype dtype) { return facts(dtype).bytes; }

std::string_view to_string(Dtype dtype) { return facts(dtype).name; }

std::optional<Dtype> dtype_from_name(std::string_view name) {
  for (const DtypeFacts& entry : kDtypes) {
    if (entry.name == name) return entry.dtype;
  }
  return std::nullopt;
}

std::optional<std::int64_t> element_count(std::span<const std::int64_t> shape) {
  std::int64_t count = 1;
  bool empty = false;
  for (const std::int64_t size : shape) {
    if (size < 0) return std::nullopt;
    if (size == 0) empty = true;
  }
  if (empty) return 0;
  for (const std::int64_t size : shape) {
    if (count > std::numeric_limits<std::int64_t>::max() / size) return std::nullopt;
    count *= size;
  }
  return count;
}

SafetensorsFile::SafetensorsFile(const Path& path)
    : file_(path), header_(parse_safetensors_header(file_.bytes(), path)) {
  for (std::size_t i = 0; i < header_.tensors.size(); ++i)
    by_name_.emplace(header_.tensors[i].name, i);
}

const TensorInfo* SafetensorsFile::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &header_.tensors[found->second];
}

std::span<const std::byte> SafetensorsFile::bytes(const TensorInfo& tensor) const {
  return file_.bytes().subspan(header_.data_offset + tensor.begin, tensor.end - tensor.begin);
}

SafetensorsModel::SafetensorsModel(const Path& path) {
  Path file = path;
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) {
    file = path / "model.safetensors";
    if (!fs::exists(file, ignored)) file = path / "model.safetensors.index.json";
    if (!fs::exists(file, ignored)) {
      throw Error(ErrorKind::kIo,
                  "there is neither model.safetensors nor model.safetensors.index.json",
                  path.string(), "Check the path of the model.");
    }
  }
  if (file.extension() != ".json") {
    files_.emplace_back(file);
    for (const TensorInfo& tensor : files_[0].tensors()) file_of_.emplace(tensor.name, 0);
    return;
  }
  std::map<std::string, std::size_t> opened;
  for (const auto& [name, shard] : read_index(file)) {
    const auto [position, is_new] = opened.emplace(shard, files_.size());
    if (is_new) files_.emplace_back(file.parent_path() / shard);
    if (files_[position->second].find(name) == nullptr) {
      corrupt_index(file, "tensor '" + name + "' is not in " + shard);
    }
    file_of_.emplace(name, position->second);
  }
}

std::vector<std::string> SafetensorsModel::names() const {
  std::vector<std::string> names;
  names.reserve(file_of_.size());
  for (const auto& [name, file] : file_of_) names.push_back(name);
  return names;
}

std::optional<SafetensorsModel::Tensor> SafetensorsModel::find(std::string_view name) const {
  const auto found = file_of_.find(name);
  if (found == file_of_.end()) return std::nullopt;
  const SafetensorsFile& file = files_[found->second];
  const TensorInfo* info = file.find(name);
  return Tensor{info, file.bytes(*info)};
}

}  // namespace tessera
