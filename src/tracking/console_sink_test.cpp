#include "tracking/console_sink.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <string>

namespace tessera {
namespace {

// What is written to a pipe.
class Capture {
 public:
  Capture() { EXPECT_EQ(::pipe(ends_.data()), 0); }
  ~Capture() {
    ::close(ends_[0]);
    if (ends_[1] >= 0) ::close(ends_[1]);
  }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;
  int descriptor() const { return ends_[1]; }
  std::string finish() {
    ::close(ends_[1]);
    ends_[1] = -1;
    std::string text;
    std::array<char, 4096> block;
    for (ssize_t n; (n = ::read(ends_[0], block.data(), block.size())) > 0;) {
      text.append(block.data(), static_cast<std::size_t>(n));
    }
    return text;
  }

 private:
  std::array<int, 2> ends_{-1, -1};
};

ConsoleSink::Clock::time_point fake_time;
ConsoleSink::Clock::time_point fake_now() { return fake_time; }
void pass(int milliseconds) { fake_time += std::chrono::milliseconds(milliseconds); }

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
    ++found;
  }
  return found;
}

// A short run: start, three steps, an evaluation, a checkpoint, the end.
std::string run_through(TerminalTraits traits, LogLevel level) {
  fake_time = ConsoleSink::Clock::time_point{} + std::chrono::hours(1);
  Capture capture;
  {
    ConsoleSink sink(std::make_shared<Terminal>(capture.descriptor(), traits, 100), level,
                     fake_now);
    StartEvent start;
    start.run = "char";
    start.total_steps = 3;
    sink.on(start);
    for (int step = 1; step <= 3; ++step) {
      pass(500);
      sink.on(ProgressEvent{"train", step, 3});
      StepEvent event;
      event.step = step;
      event.total_steps = 3;
      event.loss = 4.0 - step;
      sink.on(event);
    }
    sink.on(ProgressEvent{"eval", 0, 8});
    pass(150);
    sink.on(ProgressEvent{"eval", 4, 8});
    EvalEvent eval;
    eval.step = 3;
    eval.loss = 2;
    sink.on(eval);
    sink.on(CheckpointEvent{3, "runs/char/checkpoints/step_00000003"});
    EndEvent end;
    end.step = 3;
    sink.on(end);
  }
  return capture.finish();
}

TEST(ConsoleSinkTest, PipeGetsPlainLines) {
  const std::string text = run_through({}, LogLevel::kNormal);
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_EQ(text.find('\r'), std::string::npos);
  EXPECT_EQ(count(text, "\nstep "), 3u);
  EXPECT_EQ(count(text, "\nstep 2/3 | loss 2.0000 | "), 1u);
  EXPECT_EQ(count(text, "\neval step 3 | loss 2.0000 | "), 1u);
  EXPECT_EQ(count(text, "\ncheckpoint step 3 | runs/char/checkpoints/step_00000003\n"), 1u);
  EXPECT_EQ(count(text, "\ndone at step 3 "), 1u);
  EXPECT_TRUE(text.ends_with('\n'));
}

TEST(ConsoleSinkTest, TerminalGetsAProgressLineInsteadOfStepLines) {
  const TerminalTraits traits{.interactive = true};
  const std::string text = run_through(traits, LogLevel::kNormal);
  EXPECT_EQ(count(text, "step 2/3 |"), 0u);
  EXPECT_EQ(count(text, "train:  66%|"), 1u);
  EXPECT_EQ(count(text, "eval:  50%|"), 1u);
  EXPECT_EQ(count(text, "\ntrain: 100%|"), 2u) << "again below the eval and checkpoint lines";
  EXPECT_TRUE(text.ends_with("after 00:00:00\n")) << text;
  EXPECT_EQ(count(run_through(traits, LogLevel::kVerbose), "step 2/3 |"), 1u);
}

TEST(ConsoleSinkTest, QuietSaysNothing) {
  EXPECT_EQ(run_through({}, LogLevel::kQuiet), "");
  EXPECT_EQ(run_through({.interactive = true}, LogLevel::kQuiet), "");
}

TEST(ConsoleSinkTest, RedrawsAtMostTenTimesASecond) {
  fake_time = ConsoleSink::Clock::time_point{} + std::chrono::hours(1);
  Capture capture;
  {
    ConsoleSink sink(
        std::make_shared<Terminal>(capture.descriptor(), TerminalTraits{.interactive = true}, 100),
        LogLevel::kNormal, fake_now);
    for (int i = 1; i <= 1000; ++i) {
      pass(1);
      sink.on(ProgressEvent{"train", i, 1000});
    }
  }
  EXPECT_EQ(count(capture.finish(), "\r"), 10u);
}

TEST(ConsoleSinkTest, PaceOfTrainingLeavesOutEvaluations) {
  fake_time = ConsoleSink::Clock::time_point{} + std::chrono::hours(1);
  Capture capture;
  {
    ConsoleSink sink(
        std::make_shared<Terminal>(capture.descriptor(), TerminalTraits{.interactive = true}, 100),
        LogLevel::kNormal, fake_now);
    sink.on(ProgressEvent{"train", 0, 100});
    pass(500);
    sink.on(ProgressEvent{"train", 1, 100});
    sink.on(ProgressEvent{"eval", 0, 1});
    pass(60000);
    sink.on(EvalEvent{});
    pass(500);
    sink.on(ProgressEvent{"train", 2, 100});
  }
  const std::string text = capture.finish();
  EXPECT_NE(text.find("2/100 [01:01<00:49, 2.00it/s]"), std::string::npos) << text;
}

TEST(TerminalTest, LinesStayAboveTheStatus) {
  Capture capture;
  {
    Terminal terminal(capture.descriptor(), {.interactive = true}, 80);
    terminal.set_status("50%");
    terminal.print("warning: x");
    terminal.set_status("50%");  // unchanged: nothing to write
    terminal.set_status("");
  }
  EXPECT_EQ(capture.finish(), "\r\x1b[2K50%\r\x1b[2Kwarning: x\n50%\r\x1b[2K");
}

TEST(TerminalTest, LeavesTheCursorOnItsOwnLine) {
  Capture capture;
  { Terminal(capture.descriptor(), {.interactive = true}, 80).set_status("50%"); }
  EXPECT_TRUE(capture.finish().ends_with("50%\n"));
}

TEST(TerminalTest, TraitsFollowStreamAndEnvironment) {
  Capture capture;
  ::setenv("LC_ALL", "C.UTF-8", 1);
  TerminalTraits traits = detect_terminal_traits(capture.descriptor());
  EXPECT_FALSE(traits.interactive);
  EXPECT_FALSE(traits.colour);
  EXPECT_TRUE(traits.utf8);
  ::setenv("LC_ALL", "C", 1);
  EXPECT_FALSE(detect_terminal_traits(capture.descriptor()).utf8);

  const int terminal = ::posix_openpt(O_RDWR | O_NOCTTY);
  if (terminal < 0) GTEST_SKIP() << "this machine gives no pseudo-terminals";
  ::setenv("TERM", "xterm", 1);
  ::unsetenv("NO_COLOR");
  EXPECT_TRUE(detect_terminal_traits(terminal).interactive);
  EXPECT_TRUE(detect_terminal_traits(terminal).colour);
  ::setenv("NO_COLOR", "1", 1);
  EXPECT_TRUE(detect_terminal_traits(terminal).interactive);
  EXPECT_FALSE(detect_terminal_traits(terminal).colour);
  ::setenv("TERM", "dumb", 1);
  EXPECT_FALSE(detect_terminal_traits(terminal).interactive);
  ::unsetenv("NO_COLOR");
  ::close(terminal);
}

}  // namespace
}  // namespace tessera
