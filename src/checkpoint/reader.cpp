#include "checkpoint/reader.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>

#include "base/error.h"
#include "base/hash.h"
#include "checkpoint/manifest.h"
#include "checkpoint/sealed_text.h"
#include "checkpoint/slice_file.h"

namespace tessera {
namespace {

constexpr char kRemedy[] = "Use another checkpoint of the run.";

[[noreturn]] void corrupt(const std::string& reason, const Path& path) {
  throw Error(ErrorKind::kCorrupt, reason, path.string(), kRemedy);
}

struct Part {
  std::int64_t begin, end;
  const std::byte* data;
};

struct Tensor {
  TensorSpec spec;
  std::vector<Part> parts;  // by begin
};

struct OpenFile {
  FileEntry entry;
  MappedFile mapped;
};

std::string checksum_of(std::span<const std::byte> bytes) {
  ContentHash hash;
  hash.update(bytes);
  return hash.digest();
}

void verify_structure(const OpenFile& file) {
  const std::uint64_t size = file.mapped.bytes().size();
  if (file.entry.file_class != FileClass::kSealed && size != file.entry.size) {
    corrupt(file.entry.name + ": it has " + std::to_string(size) + " bytes instead of " +
                std::to_string(file.entry.size),
            file.mapped.path());
  }
}

void verify_content(const OpenFile& file) {
  const FileEntry& entry = file.entry;
  const auto bytes = file.mapped.bytes();
  if (entry.file_class == FileClass::kSealed) {
    check_seal(file.mapped.text(), file.mapped.path());
    return;
  }
  const bool sliced = entry.file_class == FileClass::kSlices;
  if (checksum_of(sliced ? bytes.first(entry.header_bytes) : bytes) != entry.checksum) {
    corrupt(entry.name + ": checksum differs" + (sliced ? " at its header" : ""),
            file.mapped.path());
  }
  for (const SliceEntry& slice : entry.slices) {
    if (checksum_of(bytes.subspan(slice.offset, slice.bytes())) == slice.checksum) continue;
    corrupt(entry.name + ": checksum differs at " + slice.name + ", bytes " +
                std::to_string(slice.offset) + " to " +
                std::to_string(slice.offset + slice.bytes()),
            file.mapped.path());
  }
}

}  // namespace

struct CheckpointReader::State {
  Path path;
  Manifest manifest;
  std::map<std::string, OpenFile, std::less<>> files;
  std::map<std::string, Tensor, std::less<>> tensors;

  void open_files(Verify verify);
  void assemble();
  const OpenFile* plain(std::string_view name) const;
};

void CheckpointReader::State::open_files(Verify verify) {
  for (FileEntry& entry : manifest.files) {
    const std::string name = entry.name;
    OpenFile file{std::move(entry), MappedFile(path / name)};
    verify_structure(file);
    if (verify == Verify::kFull) verify_content(file);
    if (!files.emplace(name, std::move(file)).second)
      corrupt("manifest.json: it lists " + name + " twice", path);
  }
  for (const std::string_view required : {kStateName, kConfigName, kInfoName}) {
    if (plain(required) == nullptr)
      corrupt("manifest.json: it does not list " + std::string(required), path);
  }
}

void CheckpointReader::State::assemble() {
  for (const auto& [file_name, file] : files) {
    for (const SliceEntry& slice : file.entry.slices) {
      Tensor& tensor = tensors[slice.name];
      tensor.spec = {slice.name, slice.dtype, slice.shape};
      tensor.parts.push_back({slice.begin, slice.end, file.mapped.bytes().data() + slice.offset});
    }
  }
  for (auto& [name, tensor] : tensors) {
    std::sort(tensor.parts.begin(), tensor.parts.end(), [](const Part& a, const Part& b) {
      return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
    });
  }
}

const OpenFile* CheckpointReader::State::plain(std::string_view name) const {
  const auto found = files.find(name);
  return found == files.end() || found->second.entry.file_class == FileClass::kSlices
             ? nullptr
             : &found->second;
}

CheckpointReader::CheckpointReader(const Path& folder, Verify verify)
    : state_(std::make_unique<State>()) {
  std::error_code ignored;
  if (!std::filesystem::exists(folder / kManifestName, ignored)) {
    const bool there = std::filesystem::is_directory(folder, ignored);
    throw Error(
        there ? ErrorKind::kCorrupt : ErrorKind::kIo,
        there ? "this is no checkpoint: there is no manifest.json" : "there is no such checkpoint",
        folder.string(), "Check the path, or use another checkpoint of the run.");
  }
  state_->path = folder;
  const MappedFile manifest(folder / kManifestName);
  state_->manifest = parse_manifest(manifest.text(), folder / kManifestName);
  if (const std::string fault = coverage_fault(state_->manifest.files); !fault.empty())
    corrupt(fault, folder);
  state_->open_files(verify);
  state_->assemble();
}

CheckpointReader::~CheckpointReader() = default;
CheckpointReader::CheckpointReader(CheckpointReader&&) noexcept = default;
CheckpointReader& CheckpointReader::operator=(CheckpointReader&&) noexcept = default;

const Path& CheckpointReader::path() const { return state_->path; }
std::int64_t CheckpointReader::step() const { return state_->manifest.step; }
int CheckpointReader::world_size() const { return state_->manifest.world_size; }
std::string_view CheckpointReader::state_json() const { return file(kStateName); }
std::string_view CheckpointReader::config_yaml() const { return file(kConfigName); }
std::string_view CheckpointReader::info_json() const { return file(kInfoName); }

std::vector<std::string> CheckpointReader::files() const {
  std::vector<std::string> names;
  for (const auto& [name, file] : state_->files) {
    if (file.entry.file_class != FileClass::kSlices) names.push_back(name);
  }
  return names;
}

bool CheckpointReader::has_file(std::string_view name) const {
  return state_->plain(name) != nullptr;
}

std::string_view CheckpointReader::file(std::string_view name) const {
  const OpenFile* found = state_->plain(name);
  if (found == nullptr) {
    throw Error(ErrorKind::kIo, "the checkpoint has no file " + std::string(name),
                state_->path.string());
  }
  return found->mapped.text();
}

std::vector<TensorSpec> CheckpointReader::tensors() const {
  std::vector<TensorSpec> specs;
  for (const auto& [name, tensor] : state_->tensors) specs.push_back(tensor.spec);
  return specs;
}

std::vector<TensorSpec> CheckpointReader::tensors(std::string_view stem) const {
  std::set<std::string_view> names;
  for (const auto& [file_name, file] : state_->files) {
    if (slice_file_stem(file_name) != stem) continue;
    for (const SliceEntry& slice : file.entry.slices) names.insert(slice.name);
  }
  std::vector<TensorSpec> specs;
  for (const std::string_view name : names) specs.push_back(*find(name));
  return specs;
}

const TensorSpec* CheckpointReader::find(std::string_view name) const {
  const auto found = state_->tensors.find(name);
  return found == state_->tensors.end() ? nullptr : &found->second.spec;
}

void CheckpointReader::read_range(std::string_view name, std::int64_t begin, std::int64_t end,
                                  std::span<std::byte> out) const {
  const auto found = state_->tensors.find(name);
  if (found == state_->tensors.end())
    corrupt("the checkpoint has no tensor " + std::string(name), state_->path);
  const Tensor& tensor = found->second;
  const std::size_t width = dtype_bytes(tensor.spec.dtype);
  if (begin < 0 || begin > end || end > tensor.parts.back().end ||
      out.size() != static_cast<std::size_t>(end - begin) * width) {
    throw Error(ErrorKind::kInternal, "cannot read elements " + std::to_string(begin) + " to " +
                                          std::to_string(end) + " of " + std::string(name) +
                                          ": out of range, or a buffer of another size");
  }
  auto part = std::upper_bound(
      tensor.parts.begin(), tensor.parts.end(), begin,
      [](std::int64_t element, const Part& candidate) { return element < candidate.end; });
  std::byte* target = out.data();
  for (std::int64_t from = begin; from < end; ++part) {
    const std::int64_t to = std::min(end, part->end);
    const std::size_t bytes = static_cast<std::size_t>(to - from) * width;
    std::memcpy(target, part->data + static_cast<std::size_t>(from - part->begin) * width, bytes);
    target += bytes;
    from = to;
  }
}

void CheckpointReader::read(std::string_view name, std::span<std::byte> out) const {
  const TensorSpec* spec = find(name);
  read_range(name, 0, spec == nullptr ? 0 : *element_count(spec->shape), out);
}

}  // namespace tessera
