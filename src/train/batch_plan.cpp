#include "train/batch_plan.h"

#include <algorithm>
#include <string>

#include "base/error.h"

namespace tessera {
namespace {

std::int64_t divide_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

}  // namespace

BatchPlan plan_batches(const TrainConfig& config, std::int64_t world_size,
                       std::int64_t recorded_global_rows) {
  BatchPlan plan{.global_rows = config.global_batch_size, .micro_rows = config.batch_size};
  const std::int64_t accumulation = config.gradient_accumulation;
  if (plan.global_rows == 0 && recorded_global_rows > 0 && accumulation == 0)
    plan.global_rows = recorded_global_rows;
  if (plan.micro_rows == 0) {
    plan.micro_rows = plan.global_rows == 0 ? kDefaultBatchSize
                      : accumulation > 0
                          ? divide_up(plan.global_rows, accumulation * world_size)
                          : std::min(kDefaultBatchSize, divide_up(plan.global_rows, world_size));
  }
  if (plan.global_rows == 0)
    plan.global_rows = plan.micro_rows * std::max<std::int64_t>(accumulation, 1) * world_size;
  plan.micro_batches = micro_batches_for(plan.global_rows, plan.micro_rows, world_size);
  // Micro-batches may differ by a row: 6 rows in 4 of them are 1 2 1 2.
  if (accumulation > 0 && config.batch_size == 0) plan.micro_batches = accumulation;
  if (accumulation > 0 && plan.micro_batches != accumulation) {
    throw Error(
        ErrorKind::kConfig,
        "a global batch of " + std::to_string(plan.global_rows) +
            " sequences in micro-batches of " + std::to_string(plan.micro_rows) + " on " +
            std::to_string(world_size) + " ranks takes " + std::to_string(plan.micro_batches) +
            " micro-batches, but train.gradient_accumulation is " + std::to_string(accumulation),
        "train.global_batch_size, train.batch_size, train.gradient_accumulation",
        "Leave one of the three out: it is derived from the others.");
  }
  if (recorded_global_rows > 0 && plan.global_rows != recorded_global_rows) {
    throw Error(ErrorKind::kConfig,
                "this run's global batch is " + std::to_string(recorded_global_rows) +
                    " sequences, the config asks for " + std::to_string(plan.global_rows),
                "train.global_batch_size",
                "Set train.global_batch_size=" + std::to_string(recorded_global_rows) +
                    " (any train.batch_size will do), or start a new run with --fresh or another "
                    "run.name.");
  }
  return plan;
}

std::int64_t micro_batches_for(std::int64_t rows, std::int64_t micro_rows,
                               std::int64_t world_size) {
  return std::max<std::int64_t>(divide_up(divide_up(rows, world_size), micro_rows), 1);
}

std::vector<RowRange> split_rows(std::int64_t rows, std::int64_t parts, std::int64_t rank,
                                 std::int64_t world_size) {
  const std::int64_t begin = rows * rank / world_size;
  const std::int64_t count = rows * (rank + 1) / world_size - begin;
  std::vector<RowRange> ranges;
  for (std::int64_t part = 0; part < parts; ++part) {
    ranges.push_back({begin + count * part / parts, begin + count * (part + 1) / parts});
  }
  return ranges;
}

}  // namespace tessera
