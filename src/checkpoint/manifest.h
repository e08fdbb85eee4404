// The list of everything a checkpoint consists of (docs/checkpoints.md). Owns: the text of
// manifest.json.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/file_system.h"
#include "formats/safetensors.h"

namespace tessera {

inline constexpr std::string_view kManifestName = "manifest.json";
inline constexpr std::string_view kStateName = "state.json";
inline constexpr std::string_view kConfigName = "config.yaml";
inline constexpr std::string_view kInfoName = "info.json";

// Elements [begin, end) of a tensor, lying in a slice file.
struct SliceEntry {
  std::string name;
  Dtype dtype = Dtype::kF32;
  std::vector<std::int64_t> shape;  // of the whole tensor
  std::int64_t begin = 0, end = 0;
  std::uint64_t offset = 0;  // of the data from the start of the file
  std::string checksum;      // of the data

  bool whole() const { return begin == 0 && end == element_count(shape); }
  std::uint64_t bytes() const {
    return static_cast<std::uint64_t>(end - begin) * dtype_bytes(dtype);
  }
};

enum class FileClass {
  kPlain,   // checksum of the whole file
  kSlices,  // checksum of the safetensors header, and one for each slice; together they cover every
            // byte
  kSealed,  // volatile content with a checksum of its own, so that equal states have equal
            // manifests
};

struct FileEntry {
  std::string name;  // relative to the checkpoint, with '/'
  FileClass file_class = FileClass::kPlain;
  std::uint64_t size = 0;
  std::string checksum;
  std::uint64_t header_bytes = 0;
  std::vector<SliceEntry> slices;  // by offset
};

struct Manifest {
  std::int64_t step = 0;
  int world_size = 1;
  std::vector<FileEntry> files;  // sorted by name
};

// Why these files together do not hold every tensor of theirs exactly once ("w lacks elements at
// 9"); empty when they do. Parts without elements do not count.
std::string coverage_fault(const std::vector<FileEntry>& files);

// The files alone, as one writer tells them to another.
std::string file_entries_text(const std::vector<FileEntry>& files);
// Error{kComm} where the text is of another kind.
std::vector<FileEntry> parse_file_entries(std::string_view text);

// Sealed; the same manifest gives the same text.
std::string manifest_text(const Manifest& manifest);

// Error{kCorrupt} that names `path`: a broken seal, a newer format, slices that do not cover their
// file.
Manifest parse_manifest(std::string_view text, const Path& path);

// Whether a file may be named so inside a checkpoint: relative, no "..", no empty parts, not
// hidden.
bool is_safe_file_name(std::string_view name);

}  // namespace tessera
