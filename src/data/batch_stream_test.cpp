#include "data/batch_stream.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <numeric>
#include <thread>

#include "base/error.h"

namespace tessera {
namespace {

std::shared_ptr<const Sampler> sampler() {
  std::vector<std::uint32_t> tokens(1001);
  std::iota(tokens.begin(), tokens.end(), 0u);
  return std::make_shared<Sampler>(std::make_shared<TokenDataset>(std::move(tokens)),
                                   SamplerOptions{.block_size = 10});
}

TEST(BatchStream, GivesTheSamplersBatchesFromAnyPosition) {
  const auto source = sampler();
  for (const std::int64_t ahead : {1, 2, 7}) {
    SamplerPosition position{4, 0, 0};
    for (int part = 0; part < 3; ++part) {
      BatchStream stream(source, 7, position, ahead);
      GlobalBatch batch;
      for (int step = 0; step < 11; ++step) {
        const GlobalBatch expected = source->next(position, 7);
        stream.next(batch);
        ASSERT_EQ(batch.ids, expected.ids);
        ASSERT_EQ(batch.labels, expected.labels);
        ASSERT_EQ(batch.position_after, expected.position_after);
        position = batch.position_after;
      }
    }
    EXPECT_EQ(position.epoch, 2);
  }
}

TEST(BatchStream, CarriesAnErrorAfterTheBatchesBeforeIt) {
  std::atomic<bool> broken = false;
  const BatchStream::Fill fill = [&](const SamplerPosition& position, GlobalBatch& batch) {
    if (position.offset == 3) {
      broken = true;
      throw Error(ErrorKind::kData, "broken");
    }
    batch.rows = position.offset;
    batch.position_after = {0, 0, position.offset + 1};
  };
  BatchStream stream(fill, {}, 8);
  while (!broken) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // until it is on its way here
  GlobalBatch batch;
  for (int i = 0; i < 3; ++i) {
    stream.next(batch);
    EXPECT_EQ(batch.rows, i);
  }
  EXPECT_THROW(stream.next(batch), Error);
  EXPECT_THROW(stream.next(batch), Error) << "and does not hang the second time";
}

TEST(BatchStream, MakesNoMoreThanItsBoundAhead) {
  std::atomic<int> made = 0;
  const BatchStream::Fill fill = [&](const SamplerPosition& position, GlobalBatch& batch) {
    batch.position_after = {0, 0, position.offset + 1};
    ++made;
  };
  {
    BatchStream stream(fill, {}, 3);
    GlobalBatch batch;
    for (int i = 0; i < 50; ++i) {
      stream.next(batch);
      EXPECT_LE(made.load(), i + 1 + 3 + 1);
      EXPECT_EQ(batch.position_after.offset, i + 1);
    }
  }
  const int at_end = made.load();
  EXPECT_LE(at_end, 50 + 3 + 1);
}

TEST(BatchStream, EndsAtOnceWithoutAConsumer) {
  for (int i = 0; i < 50; ++i) BatchStream stream(sampler(), 4, {}, 2);
}

TEST(BatchStream, SteadyStateUsesTheSameMemory) {
  const auto source = sampler();
  BatchStream stream(source, 5, {}, 2);
  GlobalBatch batch;
  std::vector<const std::int64_t*> seen;
  for (int i = 0; i < 40; ++i) {
    stream.next(batch);
    seen.push_back(batch.ids.data());
  }
  std::sort(seen.begin(), seen.end());
  seen.erase(std::unique(seen.begin(), seen.end()), seen.end());
  EXPECT_LE(seen.size(), 5u);
}

}  // namespace
}  // namespace tessera
