// The words of the console. Owns: the layout of each line; docs/metrics.md gives regular
// expressions for the step and eval lines, which scripts rely on. Pure functions. No line has a
// newline.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tracking/events.h"
#include "tracking/terminal.h"

namespace tessera {

// clang-format off
// step 1200/5000 | loss 3.2145 | grad_norm 0.812 | lr 2.9e-04 | 812 tok/s | mfu 61% | mem 2.1GiB | eta 01:12:33
// clang-format on
// What is not known is "-" (an unknown time --:--:--), what is not finite nan, inf or -inf.
std::string step_line(const StepEvent& event);
// loss scale step 1200 | 32768 | the gradient of h.0 overflowed: its batch is left out
std::string loss_scale_line(const LossScaleEvent& event);
// eval step 1200 | loss 3.1021 | ppl 22.25 | acc 0.371 | 12.3 s
std::string eval_line(const EvalEvent& event);

// One fact a line, labels aligned; facts that the event does not tell are left out.
std::vector<std::string> start_table(const StartEvent& event);
// Best loss, where the model lies, the exact next commands.
std::vector<std::string> end_lines(const EndEvent& event);

// What a progress line shows.
struct ProgressState {
  std::string_view activity = "train";
  std::int64_t done = 0, total = 0;  // total 0: not known, no bar
  double elapsed_seconds = 0;        // of this activity in this process
  double seconds_per_unit = 0;       // 0: not known yet
  std::vector<std::string> notes;    // most important first, ASCII
};

// train:  24%|##4       | 1200/5000 [12:33<39:46, 1.59it/s, loss 3.2145], the bar in block
// characters where the terminal has them. Never wider than columns - 1: first the bar shrinks, then
// notes go from the end, then the rest.
std::string progress_line(const ProgressState& state, const TerminalTraits& traits, int columns);

}  // namespace tessera
