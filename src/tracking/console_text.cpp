#include "tracking/console_text.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "base/text_format.h"

namespace tessera {
namespace {

constexpr double kLongestFixed = 1e6;  // from here on digits are noise

std::string scientific(double value, int decimals) {
  if (!std::isfinite(value)) return format_fixed(value, decimals);
  std::array<char, 32> text;
  std::snprintf(text.data(), text.size(), "%.*e", decimals, value);
  return text.data();
}

std::string measure(double value, int decimals) {
  return std::abs(value) < kLongestFixed ? format_fixed(value, decimals) : scientific(value, 3);
}

std::string rate(double tokens_per_second) {
  return format_fixed(tokens_per_second, tokens_per_second < 100 ? 1 : 0);
}

std::string percent(const std::optional<double>& share) {
  return share && std::isfinite(*share) ? format_fixed(*share * 100, 0) + "%" : "-";
}

std::string memory(std::uint64_t bytes) { return bytes == 0 ? "-" : format_bytes(bytes); }

std::string with_reason(const std::string& choice, const std::string& reason) {
  return reason.empty() ? choice : choice + " (" + reason + ")";
}

std::string parameters(const StartEvent& event) {
  std::string text = format_count(event.parameters);
  if (event.trainable_parameters != event.parameters) {
    text += ", " + format_count(event.trainable_parameters) + " trainable";
  }
  return text;
}

std::string data_counts(const DataCount& count) {
  std::string text;
  if (count.tokens > 0) text += format_count(count.tokens) + " tokens";
  if (count.sequences > 0) {
    text += (text.empty() ? "" : ", ") + format_count(count.sequences) + " sequences";
  }
  return text;
}

std::string batch(const StartEvent& event) {
  std::string text = format_count(event.global_batch_size) + " sequences a step";
  if (event.tokens_per_step > 0) text += ", " + format_count(event.tokens_per_step) + " tokens";
  return text;
}

std::string steps(const StartEvent& event) {
  std::string text = format_count(event.total_steps);
  if (event.steps_per_epoch > 0) {
    text += ", " + format_fixed(event.steps_per_epoch, 1) + " an epoch";
  }
  return text;
}

std::string begin(const StartEvent& event) {
  if (!event.resumed_from_step) return "fresh";
  std::string text = "resumed from step " + std::to_string(*event.resumed_from_step);
  return with_reason(text, event.resumed_from);
}

std::vector<std::string> aligned(const std::vector<LabelledText>& rows) {
  std::size_t width = 0;
  for (const LabelledText& row : rows) width = std::max(width, row.label.size());
  std::vector<std::string> lines;
  for (const LabelledText& row : rows) {
    lines.push_back(row.label + std::string(width - row.label.size() + 2, ' ') + row.text);
  }
  return lines;
}

// `width` cells, the last partly filled one in eighths (blocks) or tenths (digits), as tqdm draws
// it.
std::string bar(double share, int width, const TerminalTraits& traits) {
  constexpr std::array<const char*, 9> kBlocks{"", "▏", "▎", "▍", "▌", "▋", "▊", "▉", "█"};
  const int parts = traits.utf8 ? 8 : 10;
  const int filled = static_cast<int>(share * width * parts);
  const int whole = filled / parts, rest = filled % parts;
  std::string text;
  for (int i = 0; i < whole; ++i) text += traits.utf8 ? kBlocks.back() : "#";
  if (rest > 0) {
    text +=
        traits.utf8 ? std::string(kBlocks[static_cast<std::size_t>(rest)]) : std::to_string(rest);
  }
  text.append(static_cast<std::size_t>(width - whole - (rest > 0 ? 1 : 0)), ' ');
  return traits.colour ? "\x1b[32m" + text + "\x1b[0m" : text;
}

// "1200/5000 [12:33<39:46, 1.59it/s, notes…]" with the first `notes` notes.
std::string numbers(const ProgressState& state, std::size_t notes) {
  std::string text = std::to_string(state.done);
  if (state.total > 0) text += "/" + std::to_string(state.total);
  text += " [" + format_short_duration(state.elapsed_seconds);
  const double each = state.seconds_per_unit;
  if (state.total > 0) {
    const auto left = static_cast<double>(std::max<std::int64_t>(state.total - state.done, 0));
    text += "<" + format_short_duration(each > 0 ? left * each : -1);
  }
  if (each > 1) text += ", " + format_fixed(each, 2) + "s/it";
  if (each > 0 && each <= 1) text += ", " + format_fixed(1 / each, 2) + "it/s";
  for (std::size_t i = 0; i < notes; ++i) text += ", " + state.notes[i];
  return text + "]";
}

}  // namespace

std::string step_line(const StepEvent& event) {
  return "step " + std::to_string(event.step) + "/" + std::to_string(event.total_steps) +
         " | loss " + measure(event.loss, 4) + " | grad_norm " + measure(event.grad_norm, 3) +
         " | lr " + scientific(event.lr, 1) + " | " + rate(event.tokens_per_second) +
         " tok/s | mfu " + percent(event.mfu) + " | mem " + memory(event.memory_bytes) + " | eta " +
         format_duration(event.seconds_to_end.value_or(-1));
}

std::string loss_scale_line(const LossScaleEvent& event) {
  return "loss scale step " + std::to_string(event.step) + " | " +
         format_fixed(event.loss_scale, event.loss_scale < 10 ? 1 : 0) + " | the " +
         event.not_finite + " overflowed: its batch is left out";
}

std::string eval_line(const EvalEvent& event) {
  return "eval step " + std::to_string(event.step) + " | loss " + measure(event.loss, 4) +
         " | ppl " + measure(event.perplexity, 2) + " | acc " +
         (event.accuracy ? format_fixed(*event.accuracy, 3) : "-") + " | " +
         format_fixed(event.seconds, 1) + " s";
}

std::vector<std::string> start_table(const StartEvent& event) {
  std::vector<LabelledText> rows;
  const auto row = [&rows](const std::string& label, const std::string& text) {
    if (!text.empty()) rows.push_back({label, text});
  };
  row("run", with_reason(event.run, event.dir));
  row("model", event.model);
  row("parameters", parameters(event));
  row("device", with_reason(event.device, event.device_reason));
  row("precision", with_reason(event.precision, event.precision_reason));
  row("ranks", with_reason(std::to_string(event.world_size), event.mesh));
  row("batch", batch(event));
  row("steps", steps(event));
  for (const DataCount& count : event.data) row(count.split + " data", data_counts(count));
  row("checkpoints",
      event.checkpoint_dir.empty()
          ? "off"
          : event.checkpoint_dir +
                (event.checkpoint_every.empty() ? "" : ", every " + event.checkpoint_every));
  for (const LabelledText& more : event.more) row(more.label, more.text);
  row("start", begin(event));
  return aligned(rows);
}

std::vector<std::string> end_lines(const EndEvent& event) {
  std::vector<std::string> lines;
  std::string status(to_string(event.status));
  std::replace(status.begin(), status.end(), '_', ' ');
  std::string first = status + " at step " + std::to_string(event.step) + " after " +
                      format_duration(event.seconds);
  if (event.loss) first += ", loss " + measure(*event.loss, 4);
  lines.push_back(first);
  if (event.best_eval_loss) {
    std::string best = "best eval loss " + measure(*event.best_eval_loss, 4) + " (ppl " +
                       measure(std::exp(*event.best_eval_loss), 2) + ")";
    if (event.best_eval_step) best += " at step " + std::to_string(*event.best_eval_step);
    lines.push_back(best);
  }
  if (!event.model.empty()) lines.push_back("the model is in " + event.model);
  if (!event.commands.empty()) lines.push_back("next:");
  for (const std::string& command : aligned(event.commands)) lines.push_back("  " + command);
  return lines;
}

std::string progress_line(const ProgressState& state, const TerminalTraits& traits, int columns) {
  constexpr int kSmallestBar = 10, kLargestBar = 40;
  const int room = std::max(columns - 1, 0);
  std::string head = std::string(state.activity) + ": ";
  const bool has_bar = state.total > 0;
  const double share =
      has_bar
          ? std::clamp(static_cast<double>(state.done) / static_cast<double>(state.total), 0.0, 1.0)
          : 0.0;
  if (has_bar) {
    std::array<char, 8> text;
    std::snprintf(text.data(), text.size(), "%3d%%", static_cast<int>(share * 100));
    head += text.data();
  }
  for (std::size_t notes = state.notes.size() + 1; notes-- > 0;) {
    const std::string tail = numbers(state, notes);
    const int left = room - static_cast<int>(head.size() + tail.size()) - (has_bar ? 3 : 0);
    if (has_bar && left >= kSmallestBar) {
      return head + "|" + bar(share, std::min(left, kLargestBar), traits) + "| " + tail;
    }
    if (!has_bar && left >= 0) return head + tail;
  }
  // Too narrow for a bar.
  std::string text = head + (has_bar ? " " : "") + numbers(state, 0);
  if (static_cast<int>(text.size()) > room) text.resize(static_cast<std::size_t>(room));
  return text;
}

}  // namespace tessera
