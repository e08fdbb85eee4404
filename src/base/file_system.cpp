#include "base/file_system.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>
#include <system_error>
#include <utility>

#include "base/error.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const std::string& action, const Path& path, int code) {
  std::string remedy;
  switch (code) {
    case ENOSPC:
    case EDQUOT: remedy = "Free space there, or choose another folder."; break;
    case EROFS: remedy = "Choose a folder on a writable file system."; break;
    case EACCES:
    case EPERM: remedy = "Check the permissions of the file and of its folder."; break;
    case ENOENT: remedy = "Check the path."; break;
    case ENOTDIR:
    case EEXIST:
      remedy = "A file stands where a folder must be: move it away, or choose another folder.";
      break;
    case EFBIG:
      remedy = "Raise the limit on the size of files (ulimit -f), or choose another file system.";
      break;
    default: break;
  }
  throw Error(ErrorKind::kIo, "cannot " + action + ": " + std::strerror(code), path.string(),
              remedy);
}

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

class PosixWritableFile final : public WritableFile {
 public:
  PosixWritableFile(Path path, int fd) : path_(std::move(path)), fd_(fd) {}

  void write(std::span<const std::byte> bytes) override {
    while (!bytes.empty()) {
      // A short write follows a signal or a nearly full disk; the next call tells which.
      const ssize_t n =
          ::write(fd_.get(), bytes.data(), std::min(bytes.size(), std::size_t{1} << 30));
      if (n < 0) {
        if (errno == EINTR) continue;
        fail("write", path_, errno);
      }
      bytes = bytes.subspan(static_cast<std::size_t>(n));
    }
  }

  void write_at(std::uint64_t offset, std::span<const std::byte> bytes) override {
    while (!bytes.empty()) {
      const ssize_t n =
          ::pwrite(fd_.get(), bytes.data(), std::min(bytes.size(), std::size_t{1} << 30),
                   static_cast<off_t>(offset));
      if (n < 0) {
        if (errno == EINTR) continue;
        fail("write", path_, errno);
      }
      bytes = bytes.subspan(static_cast<std::size_t>(n));
      offset += static_cast<std::uint64_t>(n);
    }
  }

  void sync() override {
    if (::fsync(fd_.get()) != 0) fail("flush to disk", path_, errno);
  }

  void close() override {
    const int fd = fd_.release();
    if (fd >= 0 && ::close(fd) != 0 && errno != EINTR) fail("close", path_, errno);
  }

 private:
  Path path_;
  Descriptor fd_;
};

class PosixFileLock final : public FileLock {
 public:
  explicit PosixFileLock(int fd) : fd_(fd) {}

 private:
  Descriptor fd_;
};

class PosixFileSystem final : public FileSystem {
 public:
  std::unique_ptr<WritableFile> create(const Path& path) override {
    const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) fail("create the file", path, errno);
    return std::make_unique<PosixWritableFile>(path, fd);
  }

  std::string read(const Path& path) override {
    const Descriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (fd.get() < 0) fail("open", path, errno);
    std::string content;
    struct stat info {};
    if (::fstat(fd.get(), &info) == 0 && info.st_size > 0) {
      content.reserve(static_cast<std::size_t>(info.st_size));
    }
    char block[1 << 16];
    for (;;) {
      const ssize_t n = ::read(fd.get(), block, sizeof block);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) fail("read", path, errno);
      if (n == 0) return content;
      content.append(block, static_cast<std::size_t>(n));
    }
  }

  void rename(const Path& from, const Path& to) override {
    if (::rename(from.c_str(), to.c_str()) != 0) fail("rename to " + to.string(), from, errno);
  }

  void sync_directory(const Path& path) override {
    const Descriptor fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (fd.get() < 0) fail("open the folder", path, errno);
    // Some network file systems refuse fsync of a folder; their rename is durable by itself.
    if (::fsync(fd.get()) != 0 && errno != EINVAL && errno != ENOTSUP) {
      fail("flush the folder to disk", path, errno);
    }
  }

  void create_directories(const Path& path) override {
    std::error_code code;
    fs::create_directories(path, code);
    if (code) fail("create the folder", path, code.value());
  }

  void remove_all(const Path& path) override {
    std::error_code code;
    fs::remove_all(path, code);
    if (code) fail("remove", path, code.value());
  }

  bool exists(const Path& path) override {
    std::error_code code;
    return fs::exists(path, code);
  }

  bool is_directory(const Path& path) override {
    std::error_code code;
    return fs::is_directory(path, code);
  }

  std::uint64_t file_size(const Path& path) override {
    std::error_code code;
    const auto size = fs::file_size(path, code);
    if (code) fail("read the size of", path, code.value());
    return size;
  }

  std::vector<std::string> list(const Path& path) override {
    std::vector<std::string> names;
    std::error_code code;
    for (fs::directory_iterator it(path, code), end; !code && it != end; it.increment(code)) {
      names.push_back(it->path().filename().string());
    }
    if (code && code.value() != ENOENT) fail("list the folder", path, code.value());
    std::sort(names.begin(), names.end());
    return names;
  }

  std::uint64_t free_bytes(const Path& path) override {
    std::error_code code;
    Path existing = fs::absolute(path, code);
    if (code) fail("find the folder of", path, code.value());
    while (!exists(existing) && existing.has_relative_path()) existing = existing.parent_path();
    struct statvfs info {};
    if (::statvfs(existing.c_str(), &info) != 0) fail("read the free space of", existing, errno);
    return std::uint64_t{info.f_bavail} * info.f_frsize;
  }

  std::unique_ptr<FileLock> try_lock(const Path& path) override {
    Descriptor fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
    if (fd.get() < 0) fail("open the lock file", path, errno);
    int result = 0;
    do {
      result = ::flock(fd.get(), LOCK_EX | LOCK_NB);
    } while (result != 0 && errno == EINTR);
    if (result != 0 && errno == EWOULDBLOCK) return nullptr;
    if (result != 0 && errno != ENOLCK && errno != ENOTSUP && errno != ENOSYS)
      fail("lock", path, errno);
    return std::make_unique<PosixFileLock>(fd.release());
  }
};

}  // namespace

std::unique_ptr<FileSystem> make_posix_file_system() { return std::make_unique<PosixFileSystem>(); }

void write_file_atomically(FileSystem& files, const Path& path, std::string_view text) {
  const Path folder = path.has_parent_path() ? path.parent_path() : Path(".");
  Path temporary = path;
  // Two threads, or two machines on one network file system, may write the same path at once.
  std::random_device random;
  temporary += ".tmp." + std::to_string(::getpid()) + "." + std::to_string(random());
  try {
    auto file = files.create(temporary);
    file->write(text);
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
  files.sync_directory(folder);
}

MappedFile::MappedFile(const Path& path) : path_(path) {
  const Descriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (fd.get() < 0) fail("open", path, errno);
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) fail("read the size of", path, errno);
  if (S_ISDIR(info.st_mode)) fail("open", path, EISDIR);
  size_ = static_cast<std::size_t>(info.st_size);
  if (size_ == 0) return;  // an empty mapping is not allowed
  void* address = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, fd.get(), 0);
  if (address == MAP_FAILED) fail("map into memory", path, errno);
  data_ = static_cast<const std::byte*>(address);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

}  // namespace tessera
