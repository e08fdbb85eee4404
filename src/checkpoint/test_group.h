// For tests: ranks that are threads, their talk in memory, and a file system of each rank's own
// view in which any operation can be held up, fail or be the last of that rank.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/file_system.h"
#include "checkpoint/save_group.h"

namespace tessera {

// The talk of a job's ranks. A rank that is killed says and hears nothing any more; then, or when
// the job is said to have failed, nobody waits any longer.
class TestGroup {
 public:
  explicit TestGroup(int writers) {
    for (int rank = 0; rank < writers; ++rank)
      members_.push_back(std::make_unique<Member>(*this, rank, writers));
  }

  SaveGroup& member(int rank) { return *members_[static_cast<std::size_t>(rank)]; }
  void kill(int rank) {
    const std::lock_guard lock(mutex_);
    dead_.insert(rank);
    if (!failed_) failed_ = Error(ErrorKind::kComm, "rank " + std::to_string(rank) + " is gone");
    changed_.notify_all();
  }
  void fail(const Error& error) {
    const std::lock_guard lock(mutex_);
    if (!failed_) failed_ = Error(ErrorKind::kComm, std::string("the job failed: ") + error.what());
    changed_.notify_all();
  }
  std::size_t told_twice() const { return told_twice_; }
  std::size_t remembered_bytes() const {  // of what nobody has forgotten
    std::size_t bytes = 0;
    for (const auto& [key, text] : texts_) bytes += text.size();
    return bytes;
  }

 private:
  class Member final : public SaveGroup {
   public:
    Member(TestGroup& group, int rank, int writers)
        : group_(group), rank_(rank), writers_(writers) {}
    int rank() const override { return rank_; }
    int writers() const override { return writers_; }
    void tell(std::string_view key, std::string_view text) override {
      const std::lock_guard lock(group_.mutex_);
      require_alive();
      if (!group_.texts_.emplace(key, text).second) ++group_.told_twice_;
      group_.changed_.notify_all();
    }
    std::string hear(std::string_view key) override {
      std::unique_lock lock(group_.mutex_);
      const std::string name(key);
      group_.changed_.wait(
          lock, [&] { return group_.failed_.has_value() || group_.texts_.contains(name); });
      require_alive();
      const auto found = group_.texts_.find(name);
      if (found == group_.texts_.end()) throw Error(*group_.failed_);
      return found->second;
    }
    void forget(std::string_view key) override {
      const std::lock_guard lock(group_.mutex_);
      group_.texts_[std::string(key)].clear();
    }

   private:
    void require_alive() const {
      if (group_.dead_.contains(rank_)) throw Error(ErrorKind::kComm, "this rank is dead");
    }
    TestGroup& group_;
    const int rank_, writers_;
  };

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string, std::less<>> texts_;
  std::set<int> dead_;
  std::optional<Error> failed_;
  std::size_t told_twice_ = 0;
  std::vector<std::unique_ptr<Member>> members_;
};

// Runs body(rank) on a thread for each rank.
inline void run_ranks(int ranks, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) threads.emplace_back(body, rank);
  for (std::thread& thread : threads) thread.join();
}

enum class Step { kGo, kHalf, kFail };

// One rank's view of a file system. `before` is asked before each operation that changes something
// (true) and each that reads (false), and may wait; half a write is written before it fails.
class RankView final : public FileSystem {
 public:
  using Before = std::function<Step(bool changes)>;
  RankView(FileSystem& base, Before before) : base_(base), before_(std::move(before)) {}

  std::unique_ptr<WritableFile> create(const Path& path) override {
    require(true, path);
    return std::make_unique<File>(*this, path, base_.create(path));
  }
  std::string read(const Path& path) override { return require(false, path), base_.read(path); }
  void rename(const Path& from, const Path& to) override {
    require(true, from);
    base_.rename(from, to);
  }
  void sync_directory(const Path& path) override {
    require(true, path);
    base_.sync_directory(path);
  }
  void create_directories(const Path& path) override {
    require(true, path);
    base_.create_directories(path);
  }
  void remove_all(const Path& path) override {
    require(true, path);
    base_.remove_all(path);
  }
  bool exists(const Path& path) override {
    return before_(false) == Step::kGo && base_.exists(path);
  }
  bool is_directory(const Path& path) override {
    return before_(false) == Step::kGo && base_.is_directory(path);
  }
  std::uint64_t file_size(const Path& path) override {
    return require(false, path), base_.file_size(path);
  }
  std::vector<std::string> list(const Path& path) override {
    return require(false, path), base_.list(path);
  }
  std::uint64_t free_bytes(const Path& path) override { return base_.free_bytes(path); }
  std::unique_ptr<FileLock> try_lock(const Path& path) override { return base_.try_lock(path); }

 private:
  [[noreturn]] static void fail(const Path& path) {
    throw Error(ErrorKind::kIo, "cannot do it: No space left on device", path.string());
  }
  void require(bool changes, const Path& path) const {
    if (before_(changes) != Step::kGo) fail(path);
  }

  class File final : public WritableFile {
   public:
    File(RankView& view, Path path, std::unique_ptr<WritableFile> base)
        : view_(view), path_(std::move(path)), base_(std::move(base)) {}
    void write(std::span<const std::byte> bytes) override {
      const Step step = view_.before_(true);
      if (step == Step::kGo) return base_->write(bytes);
      if (step == Step::kHalf) base_->write(bytes.first(bytes.size() / 2));
      fail(path_);
    }
    void write_at(std::uint64_t offset, std::span<const std::byte> bytes) override {
      const Step step = view_.before_(true);
      if (step == Step::kGo) return base_->write_at(offset, bytes);
      if (step == Step::kHalf) base_->write_at(offset, bytes.first(bytes.size() / 2));
      fail(path_);
    }
    void sync() override {
      view_.require(true, path_);
      base_->sync();
    }
    void close() override {
      view_.require(true, path_);
      base_->close();
    }

   private:
    RankView& view_;
    const Path path_;
    const std::unique_ptr<WritableFile> base_;
  };

  FileSystem& base_;
  const Before before_;
};

}  // namespace tessera
