#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "base/error.h"
#include "formats/safetensors.h"

namespace tessera {
namespace {

[[noreturn]] void misused(const std::string& reason) {
  throw Error(ErrorKind::kInternal, "cannot lay out a safetensors file: " + reason);
}

std::string json_text(const std::string& text) {
  try {
    return nlohmann::json(text).dump();
  } catch (const nlohmann::json::exception&) {
    misused("a name is not UTF-8");
  }
}

std::uint64_t byte_count(const TensorSpec& spec) {
  const auto count = element_count(spec.shape);
  const std::uint64_t width = dtype_bytes(spec.dtype);
  if (!count || static_cast<std::uint64_t>(*count) > (std::uint64_t{1} << 60) / width) {
    misused("the shape of '" + spec.name + "' is out of range");
  }
  return static_cast<std::uint64_t>(*count) * width;
}

std::string tensor_entry(const TensorSpec& spec, std::uint64_t begin, std::uint64_t end) {
  std::string text = json_text(spec.name) + R"(:{"dtype":")" + std::string(to_string(spec.dtype)) +
                     R"(","shape":[)";
  for (std::size_t i = 0; i < spec.shape.size(); ++i)
    text += (i == 0 ? "" : ",") + std::to_string(spec.shape[i]);
  return text + R"(],"data_offsets":[)" + std::to_string(begin) + "," + std::to_string(end) + "]}";
}

std::string header_json(std::span<const std::string> entries, const SafetensorsMetadata& metadata) {
  std::string json = "{";
  if (!metadata.empty()) {
    json += R"("__metadata__":{)";
    for (const auto& [key, value] : metadata) {
      if (json.back() != '{') json += ',';
      json += json_text(key) + ":" + json_text(value);
    }
    json += '}';
  }
  for (const std::string& entry : entries) {
    if (json.size() > 1) json += ',';
    json += entry;
  }
  json += '}';
  json.resize((json.size() + 7) / 8 * 8, ' ');
  return json;
}

// Index of the specs in the order of their data.
std::vector<std::size_t> data_order(std::span<const TensorSpec> specs) {
  std::vector<std::size_t> order(specs.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return dtype_bytes(specs[a].dtype) > dtype_bytes(specs[b].dtype);
  });
  return order;
}

std::string shard_name(std::size_t shard, std::size_t shards) {
  char name[64];
  std::snprintf(name, sizeof name, "model-%05zu-of-%05zu.safetensors", shard + 1, shards);
  return name;
}

// Cuts the list where the next tensor would exceed the limit.
std::vector<std::span<const TensorData>> cut_into_shards(std::span<const TensorData> tensors,
                                                         std::uint64_t limit) {
  std::vector<std::span<const TensorData>> shards;
  std::size_t first = 0;
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (i > first && bytes + tensors[i].bytes.size() > limit) {
      shards.push_back(tensors.subspan(first, i - first));
      first = i;
      bytes = 0;
    }
    bytes += tensors[i].bytes.size();
  }
  shards.push_back(tensors.subspan(first));
  return shards;
}

}  // namespace

SafetensorsLayout plan_safetensors(std::span<const TensorSpec> specs,
                                   const SafetensorsMetadata& metadata) {
  std::set<std::string_view> names;
  SafetensorsLayout layout;
  layout.offsets.resize(specs.size());
  std::vector<std::string> entries;
  std::uint64_t position = 0;
  for (const std::size_t i : data_order(specs)) {
    const TensorSpec& spec = specs[i];
    if (spec.name == "__metadata__") misused("a tensor may not be named __metadata__");
    if (!names.insert(spec.name).second) misused("two tensors are named '" + spec.name + "'");
    const std::uint64_t bytes = byte_count(spec);
    entries.push_back(tensor_entry(spec, position, position + bytes));
    layout.offsets[i] = position;
    position += bytes;
  }
  const std::string json = header_json(entries, metadata);
  const std::uint64_t length = json.size();
  layout.header.resize(sizeof length);
  std::memcpy(layout.header.data(), &length, sizeof length);
  layout.header += json;
  for (std::uint64_t& offset : layout.offsets) offset += layout.header.size();
  layout.file_size = layout.header.size() + position;
  return layout;
}

void write_safetensors(FileSystem& files, const Path& path, std::span<const TensorData> tensors,
                       const SafetensorsMetadata& metadata) {
  std::vector<TensorSpec> specs;
  for (const TensorData& tensor : tensors) {
    specs.push_back(tensor.spec);
    if (tensor.bytes.size() != byte_count(tensor.spec))
      misused("'" + tensor.spec.name + "' has a wrong byte count");
  }
  const SafetensorsLayout layout = plan_safetensors(specs, metadata);
  Path temporary = path;
  temporary += ".tmp." + std::to_string(::getpid());
  try {
    auto file = files.create(temporary);
    file->write(layout.header);
    for (const std::size_t i : data_order(specs)) file->write(tensors[i].bytes);
    file->sync();
    file->close();
    files.rename(temporary, path);
  } catch (...) {
    try {
      files.remove_all(temporary);
    } catch (const Error&) {
      // The first failure is the one to report.
    }
    throw;
  }
  files.sync_directory(path.has_parent_path() ? path.parent_path() : Path("."));
}

std::vector<std::string> write_safetensors_model(FileSystem& files, const Path& folder,
                                                 std::span<const TensorData> tensors,
                                                 std::uint64_t max_shard_bytes) {
  static constexpr char kSingle[] = "model.safetensors";
  static constexpr char kIndex[] = "model.safetensors.index.json";
  const auto shards = cut_into_shards(tensors, max_shard_bytes);
  if (shards.size() == 1) {
    write_safetensors(files, folder / kSingle, tensors);
    files.remove_all(folder / kIndex);  // of an earlier model in shards
    return {kSingle};
  }
  std::vector<std::string> names;
  std::uint64_t total = 0;
  nlohmann::json weight_map = nlohmann::json::object();
  for (std::size_t i = 0; i < shards.size(); ++i) {
    names.push_back(shard_name(i, shards.size()));
    write_safetensors(files, folder / names.back(), shards[i]);
    for (const TensorData& tensor : shards[i]) {
      weight_map[tensor.spec.name] = names.back();
      total += tensor.bytes.size();
    }
  }
  const nlohmann::json index = {{"metadata", {{"total_size", total}}}, {"weight_map", weight_map}};
  write_file_atomically(files, folder / kIndex, index.dump(2) + "\n");
  files.remove_all(folder / kSingle);  // readers would prefer it
  names.emplace_back(kIndex);
  return names;
}

}  // namespace tessera
