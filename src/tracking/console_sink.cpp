#include "tracking/console_sink.h"

#include <utility>
#include <variant>

#include "base/text_format.h"

namespace tessera {
namespace {

constexpr std::string_view kTrain = "train";
constexpr std::chrono::milliseconds kRedraw{100};
constexpr double kPaceWeight = 0.1;  // of the newest unit in the moving average

double seconds_between(ConsoleSink::Clock::time_point from, ConsoleSink::Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

}  // namespace

ConsoleSink::ConsoleSink(std::shared_ptr<Terminal> terminal, LogLevel level,
                         Clock::time_point (*now)())
    : terminal_(std::move(terminal)), level_(level), now_(now) {}

void ConsoleSink::on(const Event& event) {
  if (level_ == LogLevel::kQuiet) return;
  std::visit([this](const auto& e) { show(e); }, event);
}

void ConsoleSink::Activity::advance(const ProgressEvent& event, Clock::time_point now) {
  if (!active) {
    active = true;
    begin = last = now;
    state = ProgressState{};
    state.activity = event.activity;
  } else if (event.done > state.done) {
    const double each = seconds_between(last, now) / static_cast<double>(event.done - state.done);
    state.seconds_per_unit = state.seconds_per_unit > 0
                                 ? (1 - kPaceWeight) * state.seconds_per_unit + kPaceWeight * each
                                 : each;
    last = now;
  }
  state.done = event.done;
  state.total = event.total;
  state.elapsed_seconds = seconds_between(begin, now);
}

void ConsoleSink::show(const StartEvent& event) {
  for (const std::string& line : start_table(event)) terminal_->print(line);
  ProgressEvent progress{kTrain, event.resumed_from_step.value_or(0), event.total_steps};
  train_.active = false;
  train_.advance(progress, now_());
}

void ConsoleSink::show(const ProgressEvent& event) {
  if (!terminal_->traits().interactive) return;
  const auto now = now_();
  if (event.activity == kTrain) {
    end_side();
    train_.advance(event, now);
    draw(train_, now);
    return;
  }
  if (side_.active && side_.state.activity != event.activity) end_side();
  side_.advance(event, now);
  draw(side_, now);
}

void ConsoleSink::show(const StepEvent& event) {
  const bool interactive = terminal_->traits().interactive;
  if (!interactive || level_ == LogLevel::kVerbose) terminal_->print(step_line(event));
  if (!interactive) return;
  end_side();
  const auto now = now_();
  train_.advance({kTrain, event.step, event.total_steps}, now);
  std::vector<std::string> notes{"loss " + format_fixed(event.loss, 4),
                                 format_short_count(event.tokens_per_second) + " tok/s"};
  if (event.mfu) notes.push_back("mfu " + format_fixed(*event.mfu * 100, 0) + "%");
  if (event.memory_bytes > 0) notes.push_back("mem " + format_bytes(event.memory_bytes));
  notes.push_back("grad_norm " + format_fixed(event.grad_norm, 3));
  train_.state.notes = std::move(notes);
  draw(train_, now);
}

void ConsoleSink::show(const LossScaleEvent& event) { terminal_->print(loss_scale_line(event)); }

void ConsoleSink::show(const EvalEvent& event) {
  end_side();
  terminal_->print(eval_line(event));
}

void ConsoleSink::show(const CheckpointEvent& event) {
  terminal_->print("checkpoint step " + std::to_string(event.step) + " | " + event.path);
}

void ConsoleSink::show(const EndEvent& event) {
  terminal_->set_status({});
  for (const std::string& line : end_lines(event)) terminal_->print(line);
}

void ConsoleSink::end_side() {
  if (!side_.active) return;
  side_.active = false;
  const auto now = now_();
  train_.last = now;  // the pace of training must not count the evaluation
  train_.state.elapsed_seconds = seconds_between(train_.begin, now);
  last_draw_ = {};
  draw(train_, now);
}

void ConsoleSink::draw(const Activity& activity, Clock::time_point now) {
  if (last_draw_ != Clock::time_point{} && now - last_draw_ < kRedraw) return;
  last_draw_ = now;
  terminal_->set_status(progress_line(activity.state, terminal_->traits(), terminal_->columns()));
}

}  // namespace tessera
