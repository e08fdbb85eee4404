// The safetensors container: named tensors in one file, or in shards with an index, as Hugging Face
// writes them. Owns: reading (memory-mapped), checking and writing of the container. Not: what the
// tensors mean, torch tensors. Layout: 8 bytes little-endian header length, JSON header padded with
// spaces, then the data without holes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file_system.h"

namespace tessera {

enum class Dtype {
  kF64,
  kI64,
  kU64,
  kF32,
  kI32,
  kU32,
  kF16,
  kBF16,
  kI16,
  kU16,
  kF8E4M3,
  kF8E5M2,
  kI8,
  kU8,
  kBool
};

std::size_t dtype_bytes(Dtype dtype);
std::string_view to_string(Dtype dtype);  // the container's own names: "F32", "BF16", …
std::optional<Dtype> dtype_from_name(std::string_view name);

// Product of the sizes, 1 for a scalar. Nothing where it is negative or exceeds 63 bits.
std::optional<std::int64_t> element_count(std::span<const std::int64_t> shape);

struct TensorInfo {
  std::string name;
  Dtype dtype = Dtype::kF32;
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0, end = 0;  // bytes, counted from the start of the data
};

using SafetensorsMetadata = std::map<std::string, std::string>;

struct SafetensorsHeader {
  std::vector<TensorInfo> tensors;  // in the order of their data
  SafetensorsMetadata metadata;
  std::uint64_t data_offset = 0;  // of the data from the start of the file
};

// Checks and parses the header of a whole file held in `file`. Refused with Error{kCorrupt} that
// names `path` and an offset: a header beyond the file or above 100 MB, JSON of another shape,
// unknown dtypes, duplicate names, sizes that differ from dtype x shape, data with holes, overlaps,
// or bytes outside the file. Memory use is bounded by the header.
SafetensorsHeader parse_safetensors_header(std::span<const std::byte> file, const Path& path);

// One file, mapped for the object's life. Safe to share between threads once constructed.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const Path& path);  // Error{kIo, kCorrupt}

  const std::vector<TensorInfo>& tensors() const { return header_.tensors; }
  const SafetensorsMetadata& metadata() const { return header_.metadata; }
  std::uint64_t data_offset() const { return header_.data_offset; }
  const Path& path() const { return file_.path(); }
  const TensorInfo* find(std::string_view name) const;  // null: not here
  // The tensor's bytes, row-major, little-endian; not necessarily aligned to its dtype.
  std::span<const std::byte> bytes(const TensorInfo& tensor) const;
  std::span<const std::byte> file_bytes() const { return file_.bytes(); }

 private:
  MappedFile file_;
  SafetensorsHeader header_;
  std::map<std::string, std::size_t, std::less<>> by_name_;
};

// A model that is one file or several: `path` is a .safetensors file, a .safetensors.index.json
// file, or a folder that holds model.safetensors or, in its absence, model.safetensors.index.json.
class SafetensorsModel {
 public:
  struct Tensor {
    const TensorInfo* info;
    std::span<const std::byte> bytes;
  };

  // Error{kIo} where nothing readable is there, Error{kCorrupt} where the index and the shards
  // disagree.
  explicit SafetensorsModel(const Path& path);
  std::vector<std::string> names() const;  // sorted
  std::optional<Tensor> find(std::string_view name) const;
  const SafetensorsMetadata& metadata() const { return files_.front().metadata(); }

 private:
  std::vector<SafetensorsFile> files_;
  std::map<std::string, std::size_t, std::less<>> file_of_;
};

struct TensorSpec {
  std::string name;
  Dtype dtype = Dtype::kF32;
  std::vector<std::int64_t> shape;
};

// Where everything of a file that is to be written goes; known before any data is.
struct SafetensorsLayout {
  std::string header;  // the first bytes of the file, length field included
  std::vector<std::uint64_t>
      offsets;  // of each tensor's data from the start of the file, in the order of the specs
  std::uint64_t file_size = 0;
};

// Data lies in the order of the specs, but wider dtypes first, so that each tensor is aligned to
// its dtype; the data starts at a multiple of 8. The same specs give the same bytes.
// Error{kInternal} on duplicate names or bad shapes.
SafetensorsLayout plan_safetensors(std::span<const TensorSpec> specs,
                                   const SafetensorsMetadata& metadata = {{"format", "pt"}});

struct TensorData {
  TensorSpec spec;
  std::span<const std::byte>
      bytes;  // row-major, exactly dtype x shape; must stay valid during the call
};

// Writes one file beside its final name, flushes it and renames it: a reader never sees a part.
// Error{kIo}.
void write_safetensors(FileSystem& files, const Path& path, std::span<const TensorData> tensors,
                       const SafetensorsMetadata& metadata = {{"format", "pt"}});

// Writes folder/model.safetensors, or, above `max_shard_bytes` of data,
// model-00001-of-00003.safetensors … and model.safetensors.index.json (last). A tensor larger than
// the limit gets a shard of its own. Returns the files' names.
std::vector<std::string> write_safetensors_model(FileSystem& files, const Path& folder,
                                                 std::span<const TensorData> tensors,
                                                 std::uint64_t max_shard_bytes);

}  // namespace tessera
