#include "parallel/step_timeline.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace tessera {
namespace {

class TimedUnit final : public Unit {
 public:
  explicit TimedUnit(std::string name) : name_(std::move(name)) {}
  const std::string& name() const override { return name_; }
  std::vector<ParameterSpec> parameters() override {
    return {{.name = name_ + ".weight", .shape = {32}, .slot = &slot_}};
  }
  at::Tensor forward(const at::Tensor& hidden, const BatchContext&) override { return hidden; }

 private:
  std::string name_;
  at::Tensor slot_;
};

// Units of 1 s forward and 2 s backward; a gather or a reduce-scatter over two ranks takes
// `link_s`.
Timeline two_units(const StepPolicy& policy, double link_s) {
  Chain chain;
  for (const char* name : {"a", "b", "c", "d"})
    chain.units.push_back(std::make_unique<TimedUnit>(name));
  StepCostInputs inputs{
      .plan = plan_step(chain, {.shard = 2, .replica = 1}, policy),
      .units = std::vector<UnitCost>(
          4, {.output_bytes = 8, .forward_flops = 1, .all = {.backward_flops = 2}})};
  inputs.plan.inputs.micro_batches = 1;
  const StepCost cost = cost_of_step(inputs);
  return timeline_of(inputs, cost, {.flops = 1, .inside_bytes = 64 / link_s});
}

TEST(StepTimelineTest, ArithmeticAloneTakesItsTime) {
  const Timeline timeline = two_units({}, 1e-6);
  EXPECT_NEAR(timeline.seconds, 4 * 3, 1e-4);
  EXPECT_NEAR(timeline.waiting, 0, 1e-4);
}

// Without prefetch every gather is waited for: four in forward, and in backward those of a and b,
// for c and d stay. The sum of the first unit's gradients is waited for at the end; the others run
// beside the next unit's backward, but the gather after them has to wait for its turn.
TEST(StepTimelineTest, PrefetchHidesGathers) {
  StepPolicy policy{.backward_prefetch = BackwardPrefetch::kNone, .forward_prefetch = false};
  const Timeline without = two_units(policy, 0.25);
  EXPECT_NEAR(without.waiting, 0.25 * (4 + 2 + 2 + 1), 1e-9);
  const Timeline with = two_units({}, 0.25);
  EXPECT_LT(with.waiting, 0.25 * 4);
}

TEST(StepTimelineTest, OneThingAtATimeInALane) {
  const Timeline timeline = two_units({}, 0.7);
  for (std::size_t i = 0; i < timeline.spans.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      const TimelineSpan &late = timeline.spans[i], &early = timeline.spans[j];
      if (late.lane == early.lane) {
        EXPECT_GE(late.begin, early.end);
      }
    }
  }
}

}  // namespace
}  // namespace tessera
