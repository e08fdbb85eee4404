// Events for a person: a table at the start, a progress line on a terminal or plain lines in a
// pipe, hints at the end.
#pragma once

#include <chrono>
#include <memory>
#include <string_view>

#include "base/log.h"
#include "tracking/console_text.h"
#include "tracking/terminal.h"
#include "tracking/tracker.h"

namespace tessera {

// kQuiet shows nothing; kNormal shows step lines in a pipe and a progress line on a terminal;
// kVerbose shows the step lines on a terminal too. The progress line is drawn at most ten times a
// second.
class ConsoleSink final : public Sink {
 public:
  using Clock = std::chrono::steady_clock;
  ConsoleSink(std::shared_ptr<Terminal> terminal, LogLevel level,
              Clock::time_point (*now)() = &Clock::now);

  std::string_view name() const override { return "console"; }
  void on(const Event& event) override;

 private:
  // One activity's progress and pace.
  struct Activity {
    ProgressState state;
    Clock::time_point begin, last;
    bool active = false;
    void advance(const ProgressEvent& event, Clock::time_point now);
  };

  void show(const StartEvent& event);
  void show(const ProgressEvent& event);
  void show(const StepEvent& event);
  void show(const LossScaleEvent& event);
  void show(const EvalEvent& event);
  void show(const CheckpointEvent& event);
  void show(const EndEvent& event);
  void end_side();
  void draw(const Activity& activity, Clock::time_point now);

  std::shared_ptr<Terminal> terminal_;
  LogLevel level_;
  Clock::time_point (*now_)();
  Activity train_, side_;  // side: an evaluation in between
  Clock::time_point last_draw_{};
};

}  // namespace tessera
