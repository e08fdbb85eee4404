#include "checkpoint/streamer.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <future>
#include <random>

#include "base/error.h"
#include "base/hash.h"

namespace tessera {
namespace {

using namespace std::chrono_literals;

// A file in memory that lets writes through only as far as the test allows.
class GatedFile final : public WritableFile {
 public:
  explicit GatedFile(std::size_t size, int open_writes = 1 << 30)
      : content(size), open_(open_writes) {}
  void write(std::span<const std::byte>) override {}
  void write_at(std::uint64_t offset, std::span<const std::byte> bytes) override {
    std::unique_lock lock(mutex_);
    ++arrived_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return open_ > 0 || broken_; });
    if (broken_) throw Error(ErrorKind::kIo, "broken");
    --open_;
    offsets.push_back(offset);
    std::memcpy(content.data() + offset, bytes.data(), bytes.size());
  }
  void sync() override {}
  void close() override {}
  void open(int writes) {
    set([&] { open_ += writes; });
  }
  // Returns when so many writes have begun.
  void wait_for_writes(int count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return arrived_ >= count; });
  }
  void break_it() {
    set([&] { broken_ = true; });
  }

  std::vector<std::byte> content;
  std::vector<std::uint64_t> offsets;

 private:
  template <class F>
  void set(F change) {
    {
      const std::lock_guard lock(mutex_);
      change();
    }
    changed_.notify_all();
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  int open_, arrived_ = 0;
  bool broken_ = false;
};

struct Fixture {
  explicit Fixture(int open_writes, std::uint64_t copy_limit)
      : memory(40), streamer(items(), copy_limit) {
    for (std::size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<std::byte>(i);
    auto owned = std::make_unique<GatedFile>(memory.size(), open_writes);
    file = owned.get();
    files.push_back(std::move(owned));
  }
  // Four items of 10 bytes; the first two belong to region 7, then 8, then 9.
  std::vector<StreamItem> items() {
    const int regions[] = {7, 7, 8, 9};
    std::vector<StreamItem> list;
    for (std::size_t i = 0; i < 4; ++i)
      list.push_back({std::span(memory).subspan(i * 10, 10), regions[i], 0, i * 10});
    return list;
  }
  void overwrite(std::size_t begin, std::size_t count) {
    std::memset(memory.data() + begin, 0xee, count);
  }
  void expect_snapshot(const std::vector<std::string>& checksums) {
    ASSERT_EQ(checksums.size(), 4u);
    for (std::size_t i = 0; i < 40; ++i)
      EXPECT_EQ(file->content[i], static_cast<std::byte>(i)) << i;
    for (std::size_t i = 0; i < 4; ++i) {
      EXPECT_EQ(checksums[i],
                content_hash(std::string_view(
                    reinterpret_cast<const char*>(file->content.data()) + i * 10, 10)));
    }
  }

  std::vector<std::byte> memory;
  SliceStreamer streamer;
  GatedFile* file;
  std::vector<std::unique_ptr<WritableFile>> files;
};

TEST(SliceStreamerTest, CopiesWhatIsNotWrittenWithinTheLimit) {
  Fixture fixture(1, 1000);
  auto done = std::async(std::launch::async, [&] { return fixture.streamer.run(fixture.files); });
  fixture.file->wait_for_writes(2);
  fixture.streamer.before_update(9);  // returns though the writer stands still
  fixture.overwrite(30, 10);
  EXPECT_EQ(fixture.streamer.copied_bytes(), 10u);
  fixture.streamer.before_update(9);
  EXPECT_EQ(fixture.streamer.copied_bytes(), 10u);
  fixture.file->open(100);
  fixture.expect_snapshot(done.get());
}

TEST(SliceStreamerTest, WaitsWhereTheCopyWouldBeTooLarge) {
  Fixture fixture(0, 9);
  auto done = std::async(std::launch::async, [&] { return fixture.streamer.run(fixture.files); });
  fixture.file->wait_for_writes(1);
  auto update = std::async(std::launch::async, [&] {
    fixture.streamer.before_update(9);
    fixture.overwrite(30, 10);
  });
  EXPECT_EQ(update.wait_for(50ms), std::future_status::timeout);
  fixture.file->open(2);  // what is being written, then the region that is waited for
  EXPECT_EQ(update.wait_for(10s), std::future_status::ready);
  fixture.file->open(100);
  fixture.expect_snapshot(done.get());
  EXPECT_EQ(fixture.streamer.copied_bytes(), 0u);
  EXPECT_EQ(fixture.file->offsets[1], 30u);
}

TEST(SliceStreamerTest, WaitsForTheItemInProgressAndCopiesTheRest) {
  Fixture fixture(0, 10);
  auto done = std::async(std::launch::async, [&] { return fixture.streamer.run(fixture.files); });
  fixture.file->wait_for_writes(1);  // the first item of region 7
  auto update = std::async(std::launch::async, [&] {
    fixture.streamer.before_update(7);
    fixture.overwrite(0, 20);
  });
  EXPECT_EQ(update.wait_for(50ms), std::future_status::timeout);
  fixture.file->open(1);
  EXPECT_EQ(update.wait_for(10s), std::future_status::ready);
  fixture.file->open(100);
  fixture.expect_snapshot(done.get());
}

TEST(SliceStreamerTest, TheLimitHoldsForTheWholeSave) {
  Fixture fixture(0, 15);
  fixture.streamer.before_update(8);
  EXPECT_EQ(fixture.streamer.copied_bytes(), 10u);
  auto done = std::async(std::launch::async, [&] { return fixture.streamer.run(fixture.files); });
  auto update = std::async(std::launch::async, [&] { fixture.streamer.before_update(9); });
  EXPECT_EQ(update.wait_for(50ms), std::future_status::timeout);
  fixture.file->open(100);
  update.get();
  fixture.expect_snapshot(done.get());
}

TEST(SliceStreamerTest, AFailureReleasesWaiters) {
  Fixture fixture(0, 0);
  auto done = std::async(std::launch::async, [&] { return fixture.streamer.run(fixture.files); });
  fixture.file->wait_for_writes(1);
  auto update = std::async(std::launch::async, [&] { fixture.streamer.before_update(9); });
  EXPECT_EQ(update.wait_for(20ms), std::future_status::timeout);
  fixture.file->break_it();
  EXPECT_THROW(done.get(), Error);
  EXPECT_EQ(update.wait_for(10s), std::future_status::ready);
  fixture.streamer.before_update(8);
}

TEST(SliceStreamerTest, CancelEndsIt) {
  Fixture fixture(0, 0);
  fixture.streamer.cancel();
  fixture.streamer.before_update(7);
  EXPECT_THROW(fixture.streamer.run(fixture.files), Error);
}

// The training thread rewrites regions as fast as it is let, in any order; the file must hold the
// old content.
TEST(SliceStreamerTest, EverySnapshotIsUntorn) {
  std::mt19937 random(3);
  constexpr std::size_t kRegions = 12, kItems = 36, kBytes = 300;
  for (int round = 0; round < 200; ++round) {
    std::vector<std::byte> memory(kItems * kBytes);
    for (std::size_t i = 0; i < memory.size(); ++i)
      memory[i] = static_cast<std::byte>(i * 7 + i / kBytes);
    const std::vector<std::byte> before = memory;
    std::vector<StreamItem> items;
    for (std::size_t i = 0; i < kItems; ++i) {
      items.push_back({std::span(memory).subspan(i * kBytes, kBytes),
                       static_cast<int>(i % kRegions), 0, i * kBytes});
    }
    SliceStreamer streamer(items, random() % (kItems * kBytes / 2));
    std::vector<std::unique_ptr<WritableFile>> files;
    files.push_back(std::make_unique<GatedFile>(memory.size()));
    auto done = std::async(std::launch::async, [&] { return streamer.run(files); });
    const std::size_t first = random() % kRegions;
    for (std::size_t i = 0; i < kRegions; ++i) {
      const std::size_t region = (first + i) % kRegions;
      streamer.before_update(static_cast<int>(region));
      for (std::size_t item = region; item < kItems; item += kRegions) {
        std::memset(memory.data() + item * kBytes, 0xee, kBytes);
      }
    }
    done.get();
    ASSERT_EQ(static_cast<GatedFile&>(*files[0]).content, before) << "round " << round;
  }
}

}  // namespace
}  // namespace tessera
