#include "checkpoint/manifest.h"

#include <algorithm>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "checkpoint/sealed_text.h"

namespace tessera {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kFormat = "tessera-checkpoint";
constexpr std::int64_t kVersion = 1;

std::string_view class_name(FileClass file_class) {
  switch (file_class) {
    case FileClass::kPlain: return "plain";
    case FileClass::kSlices: return "slices";
    case FileClass::kSealed: return "sealed";
  }
  return "plain";
}

[[noreturn]] void corrupt(const Path& path, const std::string& reason,
                          const std::string& remedy = {}) {
  throw Error(ErrorKind::kCorrupt, std::string(kManifestName) + ": " + reason, path.string(),
              remedy);
}

std::string slice_line(const SliceEntry& slice) {
  const Json line = {{"name", slice.name},        {"dtype", to_string(slice.dtype)},
                     {"shape", slice.shape},      {"begin", slice.begin},
                     {"end", slice.end},          {"offset", slice.offset},
                     {"checksum", slice.checksum}};
  return line.dump();
}

std::string file_lines(const FileEntry& file) {
  Json line = {{"name", file.name}, {"class", class_name(file.file_class)}};
  if (file.file_class != FileClass::kSealed) {
    line["size"] = file.size;
    line["checksum"] = file.checksum;
  }
  if (file.file_class != FileClass::kSlices) return line.dump();
  line["header_bytes"] = file.header_bytes;
  std::string text = line.dump();
  text.back() = ',';
  text += "\"slices\": [";
  for (std::size_t i = 0; i < file.slices.size(); ++i)
    text += (i == 0 ? "\n  " : ",\n  ") + slice_line(file.slices[i]);
  return text + "]}";
}

// nlohmann converts a negative number or a fraction without a word.
std::int64_t natural(const Json& json, const char* key) {
  const Json& value = json.at(key);
  if (!value.is_number_unsigned() ||
      value.get<std::uint64_t>() > std::uint64_t{std::numeric_limits<std::int64_t>::max()}) {
    throw std::range_error(std::string("'") + key + "' is not a natural number");
  }
  return value.get<std::int64_t>();
}

SliceEntry parse_slice(const Json& json) {
  SliceEntry slice;
  slice.name = json.at("name").get<std::string>();
  const auto dtype = dtype_from_name(json.at("dtype").get<std::string>());
  if (!dtype) throw std::range_error("the dtype of '" + slice.name + "' is unknown");
  slice.dtype = *dtype;
  slice.shape = json.at("shape").get<std::vector<std::int64_t>>();
  slice.begin = natural(json, "begin");
  slice.end = natural(json, "end");
  slice.offset = static_cast<std::uint64_t>(natural(json, "offset"));
  slice.checksum = json.at("checksum").get<std::string>();
  const auto count = element_count(slice.shape);
  const auto width = static_cast<std::int64_t>(dtype_bytes(slice.dtype));
  if (!count || slice.begin > slice.end || slice.end > *count ||
      slice.end > std::numeric_limits<std::int64_t>::max() / width) {
    throw std::range_error("the range of '" + slice.name + "' is not in its shape");
  }
  return slice;
}

// Every byte must belong to the header or to one slice, or a flipped bit could hide.
void require_cover(const FileEntry& file) {
  std::uint64_t expected = file.header_bytes;
  for (const SliceEntry& slice : file.slices) {
    if (slice.offset != expected || slice.bytes() > file.size - expected) {
      throw std::range_error("'" + slice.name + "' is out of place in " + file.name);
    }
    expected += slice.bytes();
  }
  if (expected != file.size) throw std::range_error("the slices do not cover " + file.name);
}

std::string files_array(const std::vector<FileEntry>& files) {
  std::string text = "[";
  for (std::size_t i = 0; i < files.size(); ++i)
    text += (i == 0 ? "\n " : ",\n ") + file_lines(files[i]);
  return text + "]";
}

FileEntry parse_file(const Json& json) {
  FileEntry file;
  file.name = json.at("name").get<std::string>();
  if (!is_safe_file_name(file.name))
    throw std::range_error("the file name '" + file.name + "' is not allowed");
  const auto name = json.at("class").get<std::string>();
  if (name == class_name(FileClass::kSealed)) {
    file.file_class = FileClass::kSealed;
    return file;
  }
  file.size = static_cast<std::uint64_t>(natural(json, "size"));
  file.checksum = json.at("checksum").get<std::string>();
  if (name == class_name(FileClass::kPlain)) return file;
  if (name != class_name(FileClass::kSlices))
    throw std::range_error("the class '" + name + "' is unknown");
  file.file_class = FileClass::kSlices;
  file.header_bytes = static_cast<std::uint64_t>(natural(json, "header_bytes"));
  if (file.header_bytes > file.size)
    throw std::range_error("the header of " + file.name + " is larger than the file");
  for (const Json& slice : json.at("slices")) file.slices.push_back(parse_slice(slice));
  require_cover(file);
  return file;
}

}  // namespace

bool is_safe_file_name(std::string_view name) {
  if (name.find('\0') != std::string_view::npos || name.find('\\') != std::string_view::npos)
    return false;
  while (true) {
    const std::size_t slash = name.find('/');
    const std::string_view part = name.substr(0, slash);
    if (part.empty() || part.front() == '.') return false;
    if (slash == std::string_view::npos) return true;
    name.remove_prefix(slash + 1);
  }
}

std::string manifest_text(const Manifest& manifest) {
  std::string text = "{\"format\": \"" + std::string(kFormat) +
                     "\", \"version\": " + std::to_string(kVersion) +
                     ", \"step\": " + std::to_string(manifest.step) +
                     ", \"world_size\": " + std::to_string(manifest.world_size) +
                     ",\n\"files\": " + files_array(manifest.files);
  return seal_json(text + "}");
}

std::string file_entries_text(const std::vector<FileEntry>& files) { return files_array(files); }

std::vector<FileEntry> parse_file_entries(std::string_view text) {
  std::vector<FileEntry> files;
  try {
    for (const Json& file : Json::parse(text)) files.push_back(parse_file(file));
  } catch (const std::exception& error) {  // of nlohmann::json, or of the checks above
    throw Error(ErrorKind::kComm,
                std::string("a list of a checkpoint's files cannot be read: ") + error.what());
  }
  return files;
}

std::string coverage_fault(const std::vector<FileEntry>& files) {
  std::map<std::string_view, std::vector<const SliceEntry*>> parts_of;
  for (const FileEntry& file : files) {
    for (const SliceEntry& slice : file.slices) parts_of[slice.name].push_back(&slice);
  }
  for (auto& [name, parts] : parts_of) {
    const SliceEntry& any = *parts.front();
    std::sort(parts.begin(), parts.end(), [](const SliceEntry* a, const SliceEntry* b) {
      return a->begin != b->begin ? a->begin < b->begin : a->end < b->end;
    });
    std::int64_t expected = 0;
    for (const SliceEntry* part : parts) {
      if (part->dtype != any.dtype || part->shape != any.shape)
        return "the parts of " + std::string(name) + " differ in dtype or shape";
      if (part->begin != expected) {
        return std::string(name) +
               (part->begin < expected ? " has parts that overlap" : " lacks elements") + " at " +
               std::to_string(std::min(part->begin, expected));
      }
      expected = part->end;
    }
    if (expected != element_count(any.shape))
      return std::string(name) + " lacks elements at " + std::to_string(expected);
  }
  return {};
}

Manifest parse_manifest(std::string_view text, const Path& path) {
  check_seal(text, path);
  const Json json = Json::parse(text, nullptr, false);
  Manifest manifest;
  try {
    if (json.at("format").get<std::string>() != kFormat) corrupt(path, "it is of another format");
    const std::int64_t version = natural(json, "version");
    if (version > kVersion) {
      corrupt(path,
              "its format is version " + std::to_string(version) + ", this program reads up to " +
                  std::to_string(kVersion),
              "Use a newer Tessera.");
    }
    manifest.step = natural(json, "step");
    const std::int64_t world_size = natural(json, "world_size");
    if (world_size < 1 || world_size > std::numeric_limits<int>::max())
      corrupt(path, "its world size is out of range");
    manifest.world_size = static_cast<int>(world_size);
    for (const Json& file : json.at("files")) manifest.files.push_back(parse_file(file));
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {  // of nlohmann::json, or of the checks above
    corrupt(path, error.what());
  }
  return manifest;
}

}  // namespace tessera
