// All combinations of strategy, ranks, accumulation, reduction, wrap, prefetch and activation
// checkpointing train as one process does.
#include <gtest/gtest.h>

#include "train/sharded_training.h"
#include "train/sharding_ways.h"

namespace tessera::sharding {
namespace {

TEST(ShardingSlowTest, EveryCombinationTrainsAsOneProcess) {
  for (const NamedWay& way : every_way()) expect_equal(train(way.way), one_process(), way.name);
}

}  // namespace
}  // namespace tessera::sharding
