#include "data/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <numeric>
#include <set>

#include "base/error.h"

namespace tessera {
namespace {

std::shared_ptr<const TokenDataset> counting(std::uint32_t n) {
  std::vector<std::uint32_t> tokens(n);
  std::iota(tokens.begin(), tokens.end(), 0u);
  return std::make_shared<TokenDataset>(std::move(tokens));
}

std::string message_of(const std::function<void()>& action, ErrorKind kind) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return {};
}

bool same(const GlobalBatch& a, const GlobalBatch& b) {
  return a.rows == b.rows && a.ids == b.ids && a.labels == b.labels && a.targets == b.targets &&
         a.first_row == b.first_row && a.position_after == b.position_after;
}

TEST(Sampler, AnEpochHasEveryBlockOnceAndLabelsAreShifted) {
  const Sampler sampler(counting(101), {.block_size = 10});
  EXPECT_EQ(sampler.sequences(), 10);
  EXPECT_EQ(sampler.steps_per_epoch(4), 2);
  const Sampler every(counting(101), {.block_size = 10, .last_batch = LastBatch::kKeep});
  EXPECT_EQ(every.steps_per_epoch(4), 3);
  SamplerPosition position{3, 0, 0};
  std::multiset<std::int64_t> starts;
  for (int step = 0; step < 3; ++step) {
    const GlobalBatch batch = every.next(position, 4);
    EXPECT_EQ(batch.rows, step == 2 ? 2 : 4);
    EXPECT_EQ(batch.first_row, step * 4);
    EXPECT_EQ(batch.targets, batch.rows * 10);
    for (std::int64_t row = 0; row < batch.rows; ++row) {
      starts.insert(batch.ids[static_cast<std::size_t>(row * 10)]);
      for (std::size_t i = 0; i < 10; ++i) {
        const auto at = static_cast<std::size_t>(row) * 10 + i;
        EXPECT_EQ(batch.ids[at],
                  batch.ids[static_cast<std::size_t>(row) * 10] + static_cast<int>(i));
        EXPECT_EQ(batch.labels[at], batch.ids[at] + 1);
      }
    }
    position = batch.position_after;
  }
  EXPECT_EQ(position, (SamplerPosition{3, 1, 0}));
  EXPECT_EQ(starts, (std::multiset<std::int64_t>{0, 10, 20, 30, 40, 50, 60, 70, 80, 90}));
  EXPECT_NE(every.next(position, 10).ids, every.next({3, 0, 0}, 10).ids) << "each epoch anew";
}

TEST(Sampler, WithoutShuffleTheBlocksComeInOrder) {
  const Sampler sampler(counting(101), {.block_size = 10, .shuffle = false});
  const GlobalBatch batch = sampler.next({3, 1, 2}, 3);
  for (std::size_t r = 0; r < 3; ++r) EXPECT_EQ(batch.ids[r * 10], static_cast<int>(20 + 10 * r));
}

TEST(Sampler, TakesItsOptionsFromTheConfig) {
  DataConfig config;
  config.block_size = 7;
  config.stride = 3;
  config.sampling = Sampling::kWindows;
  config.last_block = LastBlock::kKeep;
  config.shuffle = false;
  config.drop_last_batch = true;
  const SamplerOptions options = sampler_options(config);
  EXPECT_EQ(options.block_size, 7);
  EXPECT_EQ(options.stride, 3);
  EXPECT_EQ(options.mode, Sampling::kWindows);
  EXPECT_EQ(options.last_block, LastBlock::kKeep);
  EXPECT_EQ(options.last_batch, LastBatch::kDrop);
  EXPECT_FALSE(options.shuffle);
}

TEST(Sampler, CountsBlocksAsTheyFit) {
  EXPECT_EQ(Sampler(counting(100), {.block_size = 10}).sequences(), 9);
  EXPECT_EQ(Sampler(counting(100), {.block_size = 10, .last_block = LastBlock::kKeep}).sequences(),
            10);
  EXPECT_EQ(Sampler(counting(101), {.block_size = 10, .last_block = LastBlock::kKeep}).sequences(),
            10);
  EXPECT_EQ(Sampler(counting(100), {.block_size = 10, .stride = 1}).sequences(), 90);
  EXPECT_EQ(Sampler(counting(11), {.block_size = 10}).sequences(), 1);
  EXPECT_EQ(Sampler(counting(2), {.block_size = 10, .last_block = LastBlock::kKeep}).sequences(),
            1);
  const SamplerOptions windows{.mode = Sampling::kWindows, .block_size = 10};
  EXPECT_EQ(Sampler(counting(11), windows).sequences(), 1);
  EXPECT_EQ(Sampler(counting(101), windows).sequences(), 10);
}

TEST(Sampler, KeptLastBlockIsPaddedWithoutTargets) {
  const Sampler sampler(counting(15), {.block_size = 10, .last_block = LastBlock::kKeep});
  const GlobalBatch batch = sampler.next({1, 0, 0}, 2);
  EXPECT_EQ(batch.targets, 14);
  const std::size_t row = batch.ids[0] == 10 ? 0 : 1;
  const std::vector<std::int64_t> ids(batch.ids.begin() + static_cast<long>(row) * 10,
                                      batch.ids.begin() + static_cast<long>(row) * 10 + 10);
  const std::vector<std::int64_t> labels(batch.labels.begin() + static_cast<long>(row) * 10,
                                         batch.labels.begin() + static_cast<long>(row) * 10 + 10);
  EXPECT_EQ(ids, (std::vector<std::int64_t>{10, 11, 12, 13, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(labels,
            (std::vector<std::int64_t>{11, 12, 13, 14, -100, -100, -100, -100, -100, -100}));
}

TEST(Sampler, APositionRestoresTheOrderExactlyAlsoWithOtherRows) {
  for (const Sampling mode : {Sampling::kEpochs, Sampling::kWindows}) {
    const Sampler sampler(counting(1001), {.mode = mode, .block_size = 10, .stride = 3});
    std::vector<std::int64_t> by_six, by_two;
    SamplerPosition position{9, 0, 0};
    for (int step = 0; step < 4; ++step) {
      const GlobalBatch batch = sampler.next(position, 6);
      EXPECT_TRUE(same(batch, sampler.next(sampler.position_at(9, step, 6), 6)));
      by_six.insert(by_six.end(), batch.ids.begin(), batch.ids.end());
      position = batch.position_after;
    }
    position = {9, 0, 0};
    for (int step = 0; step < 12; ++step) {
      const GlobalBatch batch = sampler.next(position, 2);
      EXPECT_EQ(batch.first_row, step * 2);
      by_two.insert(by_two.end(), batch.ids.begin(), batch.ids.end());
      position = batch.position_after;
    }
    EXPECT_EQ(by_six, by_two);
  }
}

TEST(Sampler, DroppedLastBatchGoesToTheNextEpoch) {
  const Sampler sampler(counting(101), {.block_size = 10});
  const SamplerPosition position = sampler.next({1, 0, 4}, 4).position_after;
  EXPECT_EQ(position, (SamplerPosition{1, 1, 0}));
  EXPECT_EQ(sampler.next(position, 4).first_row, 10);
  EXPECT_EQ(sampler.position_at(1, 5, 4), (SamplerPosition{1, 2, 4}));
  EXPECT_DOUBLE_EQ(sampler.epochs_done({1, 2, 4}), 2.4);
  // A checkpoint may hold a place that another batch size does not reach evenly.
  EXPECT_EQ(sampler.next({1, 0, 8}, 4).first_row, 10);
}

TEST(Sampler, WindowsAreUniformOverAllStarts) {
  const Sampler sampler(counting(30), {.mode = Sampling::kWindows, .block_size = 10});
  const GlobalBatch batch = sampler.next({5, 0, 0}, 20000);
  std::vector<int> count(20, 0);
  for (std::int64_t row = 0; row < batch.rows; ++row) {
    const std::int64_t start = batch.ids[static_cast<std::size_t>(row * 10)];
    ASSERT_GE(start, 0);
    ASSERT_LT(start, 20);
    EXPECT_EQ(batch.labels[static_cast<std::size_t>(row * 10 + 9)], start + 10);
    ++count[static_cast<std::size_t>(start)];
  }
  double chi = 0;
  for (const int n : count) chi += std::pow(n - 1000.0, 2) / 1000;
  EXPECT_LT(chi, 19 + 6 * std::sqrt(38.0));
  EXPECT_NE(batch.ids, sampler.next({6, 0, 0}, 20000).ids);
}

TEST(Sampler, OrderIsTheSameOnEveryMachine) {
  // From a Python program of the same formulas; a change would break the resume of old runs.
  const Sampler epochs(counting(1000), {.block_size = 10, .stride = 1});
  const Sampler windows(counting(1000), {.mode = Sampling::kWindows, .block_size = 10});
  const auto firsts = [](const GlobalBatch& batch) {
    std::vector<std::int64_t> ids;
    for (std::size_t r = 0; r < 4; ++r) ids.push_back(batch.ids[r * 10]);
    return ids;
  };
  EXPECT_EQ(firsts(epochs.next({1337, 0, 0}, 4)), (std::vector<std::int64_t>{974, 894, 95, 9}));
  EXPECT_EQ(firsts(windows.next({1337, 0, 0}, 4)), (std::vector<std::int64_t>{141, 344, 134, 443}));
}

TEST(Sampler, SaysWhatToDoWhenTheDataIsTooSmall) {
  const auto make = [](std::uint32_t n, SamplerOptions options) {
    return [=] { const Sampler sampler(counting(n), options); };
  };
  for (const Sampling mode : {Sampling::kEpochs, Sampling::kWindows}) {
    const std::string text =
        message_of(make(10, {.mode = mode, .block_size = 10}), ErrorKind::kData);
    EXPECT_NE(text.find("has 10 tokens"), std::string::npos) << text;
    EXPECT_NE(text.find("needs 11"), std::string::npos) << text;
    EXPECT_NE(text.find("data.block_size"), std::string::npos) << text;
    for (const std::uint32_t n : {0u, 1u}) {
      message_of(make(n, {.mode = mode, .block_size = 1}), ErrorKind::kData);
    }
  }
  message_of(make(1, {.block_size = 10, .last_block = LastBlock::kKeep}), ErrorKind::kData);
  message_of(make(10, {.block_size = 0}), ErrorKind::kConfig);
  message_of(make(10, {.block_size = 2, .stride = -1}), ErrorKind::kConfig);
  const Sampler sampler(counting(101), {.block_size = 10});
  const std::string text = message_of([&] { sampler.steps_per_epoch(11); }, ErrorKind::kData);
  EXPECT_NE(text.find("train.global_batch_size"), std::string::npos) << text;
  message_of([&] { sampler.next({}, 11); }, ErrorKind::kData);
  message_of([&] { sampler.next({1, 0, -1}, 1); }, ErrorKind::kCorrupt);
  message_of([&] { sampler.next({}, 0); }, ErrorKind::kConfig);
}

TEST(EvaluationOrder, EveryTokenButTheFirstIsATargetOnce) {
  for (const std::uint32_t n : {2u, 3u, 10u, 11u, 12u, 99u, 100u, 101u, 102u}) {
    for (const std::int64_t stride : {0, 1, 3, 10}) {
      for (const std::int64_t rows : {1, 4}) {
        const EvaluationOrder order(counting(n), 10, rows, 0, stride);
        std::multiset<std::int64_t> targets;
        for (std::int64_t b = 0; b < order.batches(); ++b) {
          const GlobalBatch batch = order.batch(b);
          std::int64_t counted = 0;
          for (std::size_t i = 0; i < batch.labels.size(); ++i) {
            if (batch.labels[i] == kNoTarget) continue;
            EXPECT_EQ(batch.labels[i], batch.ids[i] + 1);
            targets.insert(batch.labels[i]);
            ++counted;
            // Context: with stride 1 every later target sees a full block.
            if (stride == 1 && batch.labels[i] >= 10) {
              EXPECT_EQ(i % 10, 9u);
            }
          }
          EXPECT_EQ(batch.targets, counted);
          EXPECT_GT(counted, 0);
        }
        EXPECT_EQ(targets.size(), n - 1);
        EXPECT_EQ(order.targets(), n - 1);
        for (std::int64_t t = 1; t < n; ++t) EXPECT_EQ(targets.count(t), 1u);
      }
    }
  }
}

TEST(EvaluationOrder, FirstBatchesAreTheSameEachTime) {
  const EvaluationOrder order(counting(101), 10, 3, 2);
  EXPECT_EQ(order.batches(), 2);
  EXPECT_EQ(order.targets(), 60);
  EXPECT_EQ(order.batch(1).ids[0], 30);
  EXPECT_TRUE(same(order.batch(0), order.batch(0)));
  message_of([&] { order.batch(2); }, ErrorKind::kInternal);
  message_of([] { EvaluationOrder(counting(1), 10, 3); }, ErrorKind::kData);
  message_of([] { EvaluationOrder(counting(9), 10, 3, 0, 11); }, ErrorKind::kConfig);
}

}  // namespace
}  // namespace tessera
