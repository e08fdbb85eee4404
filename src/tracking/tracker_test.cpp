#include "tracking/tracker.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "base/temporary_directory.h"
#include "tracking/rate_meter.h"
#include "tracking/registry.h"

namespace tessera {
namespace {

class CountingSink final : public Sink {
 public:
  CountingSink(int& seen, int fail_at) : seen_(seen), fail_at_(fail_at) {}
  std::string_view name() const override { return "counting sink"; }
  void on(const Event&) override {
    if (++seen_ == fail_at_) throw std::runtime_error("the disk is full.");
    if (seen_ == -fail_at_) throw 42;
  }

 private:
  int& seen_;
  int fail_at_;
};

TEST(TrackerTest, AFailingSinkIsDroppedWithOneWarningAndTheRestGoOn) {
  std::vector<std::string> lines;
  Log log(LogLevel::kQuiet, [&](std::string_view line) { lines.emplace_back(line); });
  Tracker tracker(log);
  int first = 0, second = 0, third = 0;
  tracker.add(std::make_unique<CountingSink>(first, 2));
  tracker.add(std::make_unique<CountingSink>(second, 0));
  tracker.add(std::make_unique<CountingSink>(third, -3));  // throws what is no exception
  for (int i = 0; i < 5; ++i) tracker.emit(StepEvent{});
  EXPECT_EQ(first, 2);
  EXPECT_EQ(second, 5);
  EXPECT_EQ(third, 3);
  EXPECT_EQ(tracker.sink_count(), 1u);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0],
            "warning: the counting sink is switched off: the disk is full. Training goes on "
            "without it.");
}

TEST(TrackerTest, ALogThatThrowsDoesNotStopTraining) {
  Log log(LogLevel::kNormal, [](std::string_view) { throw std::runtime_error("no stderr"); });
  Tracker tracker(log);
  int seen = 0;
  tracker.add(std::make_unique<CountingSink>(seen, 1));
  tracker.emit(StepEvent{});
  EXPECT_EQ(tracker.sink_count(), 0u);
}

TEST(SinkRegistryTest, MakesWhatIsAskedFor) {
  EXPECT_TRUE(make_sinks({}).empty());
  const TemporaryDirectory directory;
  SinkRequest request;
  request.metrics_path = directory.path() / "metrics.jsonl";
  request.json_lines = true;
  request.terminal = std::make_shared<Terminal>(2, TerminalTraits{}, 80);
  const auto sinks = make_sinks(request);
  ASSERT_EQ(sinks.size(), 3u);
  EXPECT_EQ(sinks[0]->name(), "metrics file " + request.metrics_path.string());
  EXPECT_EQ(sinks[2]->name(), "console");
}

RateMeter::Clock::time_point rate_time;

TEST(RateMeterTest, CoversAllTokensOfTheIntervalLessWhatIsExcluded) {
  rate_time = {};
  RateMeter meter([] { return rate_time; });
  meter.add_tokens(100);
  rate_time += std::chrono::seconds(1);
  meter.add_tokens(300);
  rate_time += std::chrono::seconds(3);
  EXPECT_DOUBLE_EQ(meter.take(), 100);
  EXPECT_DOUBLE_EQ(meter.take(), 0) << "no time, no tokens";
  meter.add_tokens(50);
  rate_time += std::chrono::seconds(12);
  meter.exclude(10);  // an evaluation
  EXPECT_DOUBLE_EQ(meter.take(), 25);
  meter.add_tokens(1000);
  meter.restart();
  meter.add_tokens(10);
  rate_time += std::chrono::seconds(2);
  EXPECT_DOUBLE_EQ(meter.take(), 5);
}

}  // namespace
}  // namespace tessera
