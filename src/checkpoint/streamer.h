// Streams memory to files while other threads go on, and tells them when a region's memory may
// change. Owns: the meeting of the writing thread and the training thread. Not: files' names, nor
// when they are durable.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/file_system.h"

namespace tessera {

struct StreamItem {
  std::span<const std::byte> bytes;
  int region = 0;
  std::size_t file = 0;      // index into the files given to run()
  std::uint64_t offset = 0;  // in the file
};

class SliceStreamer {
 public:
  // `items` in the order in which they shall be written. At most `copy_limit_bytes` are ever
  // copied.
  SliceStreamer(std::vector<StreamItem> items, std::uint64_t copy_limit_bytes);

  // Called once, by the writing thread. Returns when all items are written, with the checksum of
  // each. On a failure or after cancel() it releases all waiters and throws.
  std::vector<std::string> run(std::span<const std::unique_ptr<WritableFile>> files);

  // Called by the training thread. Returns when the region's bytes are written or copied, or
  // writing has failed.
  void before_update(int region);

  // Releases waiters and makes run() throw soon. For any thread, also instead of run().
  void cancel();

  std::uint64_t copied_bytes() const;

 private:
  enum class ItemState { kPending, kWriting, kCopying, kCopied, kWritten };
  struct Progress {
    ItemState state = ItemState::kPending;
    std::unique_ptr<std::byte[]> copy;
    std::string checksum;
  };
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);

  void write_all(std::span<const std::unique_ptr<WritableFile>> files);
  std::size_t take_next();
  std::size_t first_ready() const;
  bool ready(std::size_t item) const;
  void write_item(std::size_t item, WritableFile& file);
  std::vector<std::size_t> claim_copies(const std::vector<std::size_t>& items);
  bool settled(const std::vector<std::size_t>& items) const;

  const std::vector<StreamItem> items_;
  const std::uint64_t copy_limit_bytes_;
  std::map<int, std::vector<std::size_t>> items_of_region_;

  mutable std::mutex
      mutex_;  // guards what follows, but not the bytes of an item that is written or copied
  std::condition_variable changed_;
  std::vector<Progress> progress_;
  std::size_t written_ = 0;
  std::uint64_t copied_bytes_ = 0;
  const std::vector<std::size_t>* urgent_ = nullptr;  // items that someone waits for
  std::atomic<bool> stopped_ = false;
};

}  // namespace tessera
