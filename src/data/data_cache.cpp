#include "data/data_cache.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <system_error>

#include "base/error.h"
#include "base/hash.h"

namespace tessera {
namespace {

// Hashing less than this is faster than keeping a record of it.
constexpr std::uint64_t kRememberBytes = std::uint64_t{1} << 20;
constexpr std::int64_t kSettleNanoseconds = 2'000'000'000;

struct FileState {
  std::uint64_t bytes = 0;
  std::int64_t modified_ns = 0;  // the later of the times of content and of metadata
  std::string text;              // everything that has to be the same
};

FileState state_of(const Path& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) {
    throw Error(ErrorKind::kData, std::string("cannot open the text: ") + std::strerror(errno),
                path.string(), "Check the path and its permissions.");
  }
  const auto ns = [](const timespec& time) {
    return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
  };
  FileState state;
  state.bytes = static_cast<std::uint64_t>(info.st_size);
  state.modified_ns = std::max(ns(info.st_mtim), ns(info.st_ctim));
  state.text = std::to_string(info.st_size) + " " + std::to_string(ns(info.st_mtim)) + " " +
               std::to_string(ns(info.st_ctim)) + " " + std::to_string(info.st_dev) + " " +
               std::to_string(info.st_ino);
  return state;
}

std::string hash_content(const Path& path) {
  try {
    const MappedFile map(path);
    return content_hash(map.text());
  } catch (const Error& error) {
    throw Error(ErrorKind::kData, error.reason(), error.where(), error.remedy());
  }
}

}  // namespace

Path data_cache_folder(const std::string& cache_dir) {
  if (!cache_dir.empty()) return cache_dir;
  const auto set = [](const char* name) {
    const char* value = std::getenv(name);
    return value != nullptr && *value != '\0' ? value : nullptr;
  };
  if (const char* folder = set("TESSERA_CACHE")) return folder;
  if (const char* folder = set("XDG_CACHE_HOME")) return Path(folder) / "tessera";
  if (const char* home = set("HOME")) return Path(home) / ".cache" / "tessera";
  throw Error(ErrorKind::kConfig, "no place for prepared data: HOME is not set", {},
              "Set data.cache_dir, or the environment variable TESSERA_CACHE.");
}

FileHashes::FileHashes(FileSystem& files, const Path& cache_folder)
    : files_(files), folder_(cache_folder / "hashes") {}

std::string FileHashes::hash(const Path& path) {
  const FileState before = state_of(path);
  if (before.bytes < kRememberBytes) return hash_content(path);
  std::error_code code;
  const Path absolute = std::filesystem::absolute(path, code);
  const Path record = folder_ / content_hash((code ? path : absolute).string());
  const std::string known = before.text + "\n";
  if (files_.exists(record)) {
    const std::string content = files_.read(record);
    // "STATE\nHASH\n", nothing less: a record that is not whole is none.
    if (content.starts_with(known) && content.size() == known.size() + 33 &&
        content.back() == '\n') {
      ++remembered_;
      return content.substr(known.size(), 32);
    }
  }
  const std::int64_t now_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(
                                  std::chrono::system_clock::now().time_since_epoch())
                                  .count();
  const std::string hash = hash_content(path);
  if (state_of(path).text == before.text && now_ns - before.modified_ns > kSettleNanoseconds) {
    files_.create_directories(folder_);
    write_file_atomically(files_, record, known + hash + "\n");
  }
  return hash;
}

}  // namespace tessera
