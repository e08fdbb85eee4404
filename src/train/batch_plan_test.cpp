#include "train/batch_plan.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace tessera {
namespace {

TrainConfig config(std::int64_t global, std::int64_t micro, std::int64_t accumulation) {
  TrainConfig made;
  made.global_batch_size = global;
  made.batch_size = micro;
  made.gradient_accumulation = accumulation;
  return made;
}

TEST(BatchPlanTest, DerivesWhatIsNotGiven) {
  EXPECT_EQ(plan_batches(config(0, 4, 3), 2, 0).global_rows, 24);
  EXPECT_EQ(plan_batches(config(24, 4, 0), 2, 0).micro_batches, 3);
  EXPECT_EQ(plan_batches(config(24, 0, 3), 2, 0).micro_rows, 4);
  EXPECT_EQ(plan_batches(config(0, 0, 0), 1, 0).global_rows, kDefaultBatchSize);
  EXPECT_EQ(plan_batches(config(10, 4, 0), 1, 0).micro_batches, 3);
  EXPECT_EQ(plan_batches(config(0, 4, 0), 1, 12).micro_batches,
            3);  // a resumed run keeps its global batch
}

TEST(BatchPlanTest, RefusesContradictions) {
  EXPECT_THROW(plan_batches(config(24, 4, 4), 2, 0), Error);
  EXPECT_THROW(plan_batches(config(24, 4, 0), 1, 12), Error);
}

TEST(BatchPlanTest, MicroBatchesDifferByOneRowAtMost) {
  EXPECT_EQ(split_rows(10, 3, 0, 1), (std::vector<RowRange>{{0, 3}, {3, 6}, {6, 10}}));
  EXPECT_EQ(split_rows(8, 1, 0, 1), (std::vector<RowRange>{{0, 8}}));
  EXPECT_EQ(split_rows(9, 2, 0, 1), (std::vector<RowRange>{{0, 4}, {4, 9}}));
  EXPECT_EQ(split_rows(12, 4, 1, 2), (std::vector<RowRange>{{6, 7}, {7, 9}, {9, 10}, {10, 12}}));
}

TEST(BatchPlanTest, AccumulationAloneDecidesTheNumberOfMicroBatches) {
  const BatchPlan plan = plan_batches(config(12, 0, 4), 2, 0);
  EXPECT_EQ(plan.micro_batches, 4);
  EXPECT_EQ(plan.micro_rows, 2);
}

TEST(BatchPlanTest, RanksShareEveryRowOnceInEquallyManyMicroBatches) {
  for (std::int64_t rows = 0; rows <= 13; ++rows) {
    for (std::int64_t ranks = 1; ranks <= 5; ++ranks) {
      for (std::int64_t micro_rows = 1; micro_rows <= 4; ++micro_rows) {
        std::int64_t next = 0;
        std::size_t parts = 0;
        for (std::int64_t rank = 0; rank < ranks; ++rank) {
          const std::vector<RowRange> ranges =
              split_rows(rows, micro_batches_for(rows, micro_rows, ranks), rank, ranks);
          if (rank == 0) parts = ranges.size();
          EXPECT_EQ(ranges.size(), parts);
          for (const RowRange& range : ranges) {
            EXPECT_EQ(range.begin, next);
            EXPECT_LE(range.count(), micro_rows);
            next = range.end;
          }
        }
        EXPECT_EQ(next, rows) << ranks << " ranks";
      }
    }
  }
}

}  // namespace
}  // namespace tessera
