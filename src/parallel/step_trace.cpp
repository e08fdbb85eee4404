#include "parallel/step_trace.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

namespace tessera {
namespace {

using Clock = StepTrace::Clock;

class TracedWork final : public Work {
 public:
  TracedWork(std::unique_ptr<Work> work, std::string lane, std::string what, StepTrace& trace)
      : work_(std::move(work)), lane_(std::move(lane)), what_(std::move(what)), trace_(trace) {}

  void wait() override {
    const Clock::time_point asked = Clock::now();
    work_->wait();
    const Clock::time_point there = Clock::now();
    trace_.add(lane_, what_, begun_, there);
    // What was there already costs next to nothing.
    if (there - asked > std::chrono::microseconds(50)) {
      trace_.add("waiting", what_, asked, there);
    }
  }

 private:
  std::unique_ptr<Work> work_;
  std::string lane_, what_;
  StepTrace& trace_;
  Clock::time_point begun_ = Clock::now();
};

class TracedCommunicator final : public Communicator {
 public:
  TracedCommunicator(std::unique_ptr<Communicator> communicator, std::string lane, StepTrace& trace)
      : inner_(std::move(communicator)), lane_(std::move(lane)), trace_(trace) {}

  int rank() const override { return inner_->rank(); }
  int world_size() const override { return inner_->world_size(); }
  std::string_view name() const override { return inner_->name(); }
  void note(std::string_view purpose) override {
    purpose_ = purpose;
    inner_->note(purpose);
  }

  std::unique_ptr<Work> all_reduce(at::Tensor tensor, ReduceOperation operation) override {
    return traced("all_reduce", inner_->all_reduce(std::move(tensor), operation));
  }
  std::unique_ptr<Work> all_gather(at::Tensor output, at::Tensor input) override {
    return traced("all_gather", inner_->all_gather(std::move(output), std::move(input)));
  }
  std::unique_ptr<Work> reduce_scatter(at::Tensor output, at::Tensor input,
                                       ReduceOperation operation) override {
    return traced("reduce_scatter",
                  inner_->reduce_scatter(std::move(output), std::move(input), operation));
  }
  std::unique_ptr<Work> broadcast(at::Tensor tensor, int root) override {
    return traced("broadcast", inner_->broadcast(std::move(tensor), root));
  }
  std::unique_ptr<Work> barrier() override { return traced("barrier", inner_->barrier()); }

 private:
  std::unique_ptr<Work> traced(const char* verb, std::unique_ptr<Work> work) {
    if (!trace_.on()) return work;
    return std::make_unique<TracedWork>(std::move(work), lane_, verb + (", " + purpose_), trace_);
  }

  std::unique_ptr<Communicator> inner_;
  std::string lane_, purpose_;
  StepTrace& trace_;
};

}  // namespace

void StepTrace::start() {
  const std::scoped_lock lock(mutex_);
  spans_.clear();
  start_ = Clock::now();
  on_ = true;
}

void StepTrace::stop() { on_ = false; }

void StepTrace::add(std::string_view lane, std::string_view name, Clock::time_point begin,
                    Clock::time_point end) {
  if (!on_) return;
  const std::scoped_lock lock(mutex_);
  spans_.push_back({std::string(lane), std::string(name), begin, end});
}

std::string StepTrace::json(int rank) const {
  using Json = nlohmann::ordered_json;
  const std::scoped_lock lock(mutex_);
  std::vector<std::string> lanes;
  Json events = Json::array();
  for (const Span& span : spans_) {
    auto lane = std::find(lanes.begin(), lanes.end(), span.lane);
    if (lane == lanes.end()) lane = lanes.insert(lanes.end(), span.lane);
    const auto microseconds = [](Clock::duration time) {
      return std::chrono::duration<double, std::micro>(time).count();
    };
    events.push_back({{"name", span.name},
                      {"ph", "X"},
                      {"pid", rank},
                      {"tid", lane - lanes.begin()},
                      {"ts", microseconds(span.begin - start_)},
                      {"dur", microseconds(span.end - span.begin)}});
  }
  const auto name = [&](const char* what, std::size_t thread, const std::string& text) {
    events.push_back(
        {{"name", what}, {"ph", "M"}, {"pid", rank}, {"tid", thread}, {"args", {{"name", text}}}});
  };
  name("process_name", 0, "rank " + std::to_string(rank));
  for (std::size_t lane = 0; lane < lanes.size(); ++lane) name("thread_name", lane, lanes[lane]);
  const Json whole = {{"traceEvents", events}, {"displayTimeUnit", "ms"}};
  return whole.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::unique_ptr<Communicator> make_traced_communicator(std::unique_ptr<Communicator> communicator,
                                                       std::string lane, StepTrace& trace) {
  return std::make_unique<TracedCommunicator>(std::move(communicator), std::move(lane), trace);
}

}  // namespace tessera
