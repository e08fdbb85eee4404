#include "checkpoint/streamer.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "base/error.h"
#include "base/hash.h"

namespace tessera {
namespace {

// Small enough to stay in the cache between the checksum and the write.
constexpr std::size_t kChunkBytes = std::size_t{1} << 20;

}  // namespace

SliceStreamer::SliceStreamer(std::vector<StreamItem> items, std::uint64_t copy_limit_bytes)
    : items_(std::move(items)), copy_limit_bytes_(copy_limit_bytes), progress_(items_.size()) {
  for (std::size_t i = 0; i < items_.size(); ++i) items_of_region_[items_[i].region].push_back(i);
}

std::vector<std::string> SliceStreamer::run(std::span<const std::unique_ptr<WritableFile>> files) {
  try {
    write_all(files);
  } catch (...) {
    cancel();
    throw;
  }
  std::vector<std::string> checksums;
  const std::lock_guard lock(mutex_);
  for (Progress& progress : progress_) checksums.push_back(std::move(progress.checksum));
  return checksums;
}

void SliceStreamer::write_all(std::span<const std::unique_ptr<WritableFile>> files) {
  for (std::size_t item = take_next(); item != kNone; item = take_next()) {
    write_item(item, *files[items_[item].file]);
    {
      const std::lock_guard lock(mutex_);
      progress_[item].state = ItemState::kWritten;
      progress_[item].copy.reset();
      ++written_;
    }
    changed_.notify_all();
  }
}

// Waits while the only items left are just being copied. kNone: all are written.
std::size_t SliceStreamer::take_next() {
  std::unique_lock lock(mutex_);
  std::size_t item = kNone;
  changed_.wait(lock, [&] {
    item = first_ready();
    return stopped_ || written_ == items_.size() || item != kNone;
  });
  if (stopped_) throw Error(ErrorKind::kIo, "the checkpoint was given up before it was whole");
  if (item != kNone) progress_[item].state = ItemState::kWriting;
  return item;
}

bool SliceStreamer::ready(std::size_t item) const {
  return progress_[item].state == ItemState::kPending ||
         progress_[item].state == ItemState::kCopied;
}

std::size_t SliceStreamer::first_ready() const {
  if (urgent_ != nullptr) {
    for (const std::size_t item : *urgent_) {
      if (progress_[item].state == ItemState::kPending) return item;
    }
  }
  for (std::size_t item = 0; item < items_.size(); ++item) {
    if (ready(item)) return item;
  }
  return kNone;
}

void SliceStreamer::write_item(std::size_t item, WritableFile& file) {
  const std::byte* data = items_[item].bytes.data();
  {
    const std::lock_guard lock(mutex_);
    if (progress_[item].copy != nullptr) data = progress_[item].copy.get();
  }
  ContentHash hash;
  const std::size_t size = items_[item].bytes.size();
  for (std::size_t done = 0; done < size; done += kChunkBytes) {
    if (stopped_) throw Error(ErrorKind::kIo, "the checkpoint was given up before it was whole");
    const std::span chunk(data + done, std::min(kChunkBytes, size - done));
    hash.update(chunk);
    file.write_at(items_[item].offset + done, chunk);
  }
  progress_[item].checksum = hash.digest();
}

// Marks the region's pending items as ours to copy, if they fit under the limit and memory can be
// had.
std::vector<std::size_t> SliceStreamer::claim_copies(const std::vector<std::size_t>& items) {
  std::vector<std::size_t> claimed;
  std::uint64_t bytes = 0;
  for (const std::size_t item : items) {
    if (progress_[item].state != ItemState::kPending) continue;
    claimed.push_back(item);
    bytes += items_[item].bytes.size();
  }
  if (bytes > copy_limit_bytes_ - copied_bytes_) return {};
  try {
    for (const std::size_t item : claimed) {
      progress_[item].copy = std::make_unique_for_overwrite<std::byte[]>(items_[item].bytes.size());
    }
  } catch (const std::bad_alloc&) {  // then wait for the writer
    for (const std::size_t item : claimed) progress_[item].copy.reset();
    return {};
  }
  for (const std::size_t item : claimed) progress_[item].state = ItemState::kCopying;
  copied_bytes_ += bytes;
  return claimed;
}

bool SliceStreamer::settled(const std::vector<std::size_t>& items) const {
  return std::all_of(items.begin(), items.end(), [&](std::size_t item) {
    return progress_[item].state == ItemState::kWritten ||
           (progress_[item].copy != nullptr && progress_[item].state != ItemState::kCopying);
  });
}

void SliceStreamer::before_update(int region) {
  const auto found = items_of_region_.find(region);
  if (found == items_of_region_.end()) return;
  const std::vector<std::size_t>& items = found->second;
  std::unique_lock lock(mutex_);
  if (stopped_ || settled(items)) return;
  const std::vector<std::size_t> claimed = claim_copies(items);
  if (!claimed.empty()) {
    std::vector<std::byte*> targets;
    for (const std::size_t item : claimed) targets.push_back(progress_[item].copy.get());
    lock.unlock();
    for (std::size_t i = 0; i < claimed.size(); ++i) {
      const auto bytes = items_[claimed[i]].bytes;
      if (!bytes.empty()) std::memcpy(targets[i], bytes.data(), bytes.size());
    }
    lock.lock();
    for (const std::size_t item : claimed) progress_[item].state = ItemState::kCopied;
    changed_.notify_all();
  }
  urgent_ = &items;
  changed_.wait(lock, [&] { return stopped_ || settled(items); });
  urgent_ = nullptr;
}

void SliceStreamer::cancel() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  changed_.notify_all();
}

std::uint64_t SliceStreamer::copied_bytes() const {
  const std::lock_guard lock(mutex_);
  return copied_bytes_;
}

}  // namespace tessera
