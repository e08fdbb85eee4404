#include "parallel/step_trace.h"

#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "parallel/thread_ranks.h"

namespace tessera {
namespace {

using Json = nlohmann::json;

std::vector<Json> spans_of(const StepTrace& trace) {
  std::vector<Json> spans;
  const Json whole = Json::parse(trace.json(3));
  for (const Json& event : whole.at("traceEvents")) {
    if (event.at("ph") == "X") spans.push_back(event);
  }
  return spans;
}

TEST(StepTraceTest, RecordsOnlyBetweenStartAndStop) {
  StepTrace trace;
  const auto now = StepTrace::Clock::now();
  trace.add("compute", "before", now, now);
  trace.start();
  const auto begin = StepTrace::Clock::now();
  trace.add("compute", "Forward h.0", begin, begin + std::chrono::microseconds(250));
  trace.stop();
  trace.add("compute", "after", now, now);
  const std::vector<Json> spans = spans_of(trace);
  ASSERT_EQ(spans.size(), 1U);
  EXPECT_EQ(spans[0].at("name"), "Forward h.0");
  EXPECT_EQ(spans[0].at("pid"), 3);
  EXPECT_NEAR(spans[0].at("dur").get<double>(), 250, 1e-6);
  EXPECT_GE(spans[0].at("ts").get<double>(), 0);
}

// From the moment it is asked for until it is waited for: what lies between runs at the same time.
TEST(StepTraceTest, AnOperationLastsUntilItsResultIsUsed) {
  run_thread_ranks({.shard = 2, .replica = 1}, [](const MeshGroups& groups) {
    StepTrace trace;
    struct Borrowed final : Communicator {
      explicit Borrowed(Communicator& communicator) : inner(communicator) {}
      int rank() const override { return inner.rank(); }
      int world_size() const override { return inner.world_size(); }
      std::string_view name() const override { return inner.name(); }
      std::unique_ptr<Work> all_reduce(at::Tensor tensor, ReduceOperation operation) override {
        return inner.all_reduce(std::move(tensor), operation);
      }
      std::unique_ptr<Work> all_gather(at::Tensor output, at::Tensor input) override {
        return inner.all_gather(std::move(output), std::move(input));
      }
      std::unique_ptr<Work> reduce_scatter(at::Tensor output, at::Tensor input,
                                           ReduceOperation operation) override {
        return inner.reduce_scatter(std::move(output), std::move(input), operation);
      }
      std::unique_ptr<Work> broadcast(at::Tensor tensor, int root) override {
        return inner.broadcast(std::move(tensor), root);
      }
      std::unique_ptr<Work> barrier() override { return inner.barrier(); }
      Communicator& inner;
    };
    const auto traced =
        make_traced_communicator(std::make_unique<Borrowed>(*groups.world), "world", trace);
    trace.start();
    traced->note("parameters of h.1");
    const auto work = traced->all_reduce(at::ones({4}), ReduceOperation::kSum);
    const auto begin = StepTrace::Clock::now();
    trace.add("compute", "Forward h.0", begin, StepTrace::Clock::now());
    work->wait();
    const std::vector<Json> spans = spans_of(trace);
    ASSERT_GE(spans.size(), 2U);
    const Json &forward = spans[0], &gather = spans[1];
    EXPECT_EQ(gather.at("name"), "all_reduce, parameters of h.1");
    EXPECT_LE(gather.at("ts").get<double>(), forward.at("ts").get<double>());
    EXPECT_GE(gather.at("ts").get<double>() + gather.at("dur").get<double>(),
              forward.at("ts").get<double>() + forward.at("dur").get<double>());
  });
}

}  // namespace
}  // namespace tessera
