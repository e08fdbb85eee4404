// The seam through which files are written that must survive a crash, so that tests can make any
// single operation fail. Owns: the interface and its POSIX implementation. Not: what the files
// mean.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

using Path = std::filesystem::path;

// A file open for writing from its start. Every failure throws Error{kIo} that names the path and
// the system's reason (a full disk and a missing permission are named as such). Destroying without
// close() leaves an incomplete file.
class WritableFile {
 public:
  virtual ~WritableFile() = default;
  virtual void write(std::span<const std::byte> bytes) = 0;
  void write(std::string_view text) { write(std::as_bytes(std::span(text.data(), text.size()))); }
  // At a place of the caller's choice, also beyond the present end; where write() goes on is
  // unchanged.
  virtual void write_at(std::uint64_t offset, std::span<const std::byte> bytes) = 0;
  virtual void sync() = 0;   // fsync: returns when the bytes are on the device
  virtual void close() = 0;  // reports what a delayed write found
};

// A lock on a file, held until the object's end. The system frees it when the process dies.
class FileLock {
 public:
  virtual ~FileLock() = default;
};

// Thread-safe as far as the operating system is. All functions throw Error{kIo} unless noted.
class FileSystem {
 public:
  virtual ~FileSystem() = default;
  virtual std::unique_ptr<WritableFile> create(const Path& path) = 0;  // truncates
  virtual std::string read(const Path& path) = 0;                      // the whole file
  virtual void rename(const Path& from, const Path& to) = 0;           // atomic, replaces
  virtual void sync_directory(const Path& path) = 0;                   // makes names in it durable
  virtual void create_directories(const Path& path) = 0;
  virtual void remove_all(const Path& path) = 0;  // nothing there: fine
  virtual bool exists(const Path& path) = 0;      // false where it cannot be told
  virtual bool is_directory(const Path& path) = 0;
  virtual std::uint64_t file_size(const Path& path) = 0;
  virtual std::vector<std::string> list(const Path& path) = 0;  // names, sorted; no folder: empty
  virtual std::uint64_t free_bytes(const Path& path) = 0;       // on the device that holds path
  // Makes the file if need be. Null: another process, or another object of this one, holds the
  // lock. Where the file system knows no locks the lock is granted.
  virtual std::unique_ptr<FileLock> try_lock(const Path& path) = 0;
};

// The real one. Stateless; one object may serve all threads.
std::unique_ptr<FileSystem> make_posix_file_system();

// Writes `text` so that a reader sees the old content or the new, never a part: a temporary name
// beside `path`, fsync, rename, fsync of the folder.
void write_file_atomically(FileSystem& files, const Path& path, std::string_view text);

// A file mapped read-only into memory for its object's life. Move-only.
class MappedFile {
 public:
  explicit MappedFile(const Path& path);  // Error{kIo}
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  std::string_view text() const { return {reinterpret_cast<const char*>(data_), size_}; }
  const Path& path() const { return path_; }

 private:
  Path path_;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace tessera
