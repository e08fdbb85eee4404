#include "launcher/rank_failure.h"

#include <signal.h>
#include <string.h>
#include <time.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"

namespace tessera {
namespace {

constexpr double kLongestDelay_s = 30;
constexpr std::size_t kWidest = 60;

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

std::string time_text(double time) {
  const auto seconds = static_cast<time_t>(time);
  tm parts{};
  localtime_r(&seconds, &parts);
  char buffer[32];
  strftime(buffer, sizeof buffer, "%Y-%m-%d_%H:%M:%S", &parts);
  return buffer;
}

std::string indented(const std::string& text) {
  std::string result;
  for (const char c : text) result += c == '\n' ? std::string("\n  ") : std::string(1, c);
  return result;
}

std::string entry(std::size_t index, const RankFailure& failure) {
  const std::string name = failure.signal == 0 ? "" : " (" + signal_name(failure.signal) + ")";
  const int code = failure.signal == 0 ? failure.exit_code : -failure.signal;
  std::string message = failure.message;
  if (message.empty()) {
    message = failure.signal != 0 ? "Signal " + std::to_string(failure.signal) + name +
                                        " received by PID " + std::to_string(failure.process)
                                  : "the rank left no message; see its output";
  }
  return "[" + std::to_string(index) + "]:\n  time      : " + time_text(failure.time) +
         "\n  host      : " + failure.host + "\n  rank      : " + std::to_string(failure.rank) +
         " (local_rank: " + std::to_string(failure.local_rank) +
         ")\n  exitcode  : " + std::to_string(code) + " (pid: " + std::to_string(failure.process) +
         ")" + name + "\n  error_file: " +
         (failure.error_file.empty() ? std::string("<N/A>") : failure.error_file) +
         "\n  message   : " + indented(message) + "\n";
}

double restart_delay(const RestartBudget& budget) {
  return std::min(budget.first_delay_s * std::pow(2.0, budget.used), kLongestDelay_s);
}

}  // namespace

std::string signal_name(int number) {
  const char* name = sigabbrev_np(number);
  return name == nullptr ? "signal " + std::to_string(number) : "SIG" + std::string(name);
}

int RankFailure::launcher_code() const { return signal != 0 || process == 0 ? 5 : exit_code; }

std::string RankFailure::cause() const {
  // A rank that lost another one says which: that one is the cause, not who says it.
  const bool tells_another = signal == 0 && process > 0 && exit_code == 5;
  if (tells_another && message.find("rank ") != std::string::npos) return first_line(message);
  std::string text = "rank " + std::to_string(rank) + " (host " + host + ") ";
  if (process == 0) {
    text += "is gone";
  } else if (process < 0) {
    text += "could not be started";
  } else if (signal != 0) {
    text += "was killed by " + signal_name(signal);
  } else {
    text += "exited with code " + std::to_string(exit_code);
  }
  if (!message.empty()) return text + ": " + first_line(message);
  if (signal == SIGKILL)
    return text + ": by the system where memory ran out, or by somebody (pid " +
           std::to_string(process) + ")";
  return text + " (pid " + std::to_string(process) + ")";
}

void order_failures(std::vector<RankFailure>& failures) {
  std::stable_sort(failures.begin(), failures.end(), [](const auto& a, const auto& b) {
    return std::pair(a.is_consequence(), a.time) < std::pair(b.is_consequence(), b.time);
  });
}

std::string failure_summary(std::string_view job, const std::vector<RankFailure>& failures) {
  std::string others;
  for (std::size_t i = failures.size(); i-- > 1;) others += entry(i, failures[i]);
  if (others.empty()) others = "  <NO_OTHER_FAILURES>\n";
  const std::string line(kWidest, '='), thin(kWidest, '-');
  return line + "\n" + std::string(job) + " FAILED\n" + thin + "\nFailures:\n" + others + thin +
         "\nRoot Cause (first observed failure):\n" + entry(0, failures.front()) + line + "\n";
}

Verdict judge(const std::vector<NodeEnd>& nodes, const RestartBudget& budget) {
  Verdict verdict;
  int stop_signal = 0;
  for (const NodeEnd& node : nodes) {
    verdict.failures.insert(verdict.failures.end(), node.failures.begin(), node.failures.end());
    if (node.stop_signal != 0) stop_signal = node.stop_signal;
    if (node.code != 0) verdict.exit_code = node.code;
  }
  if (verdict.failures.empty()) return verdict;
  order_failures(verdict.failures);
  const int code = verdict.failures.front().launcher_code();
  verdict.exit_code = code;
  if (budget.max == 0 || stop_signal != 0) return verdict;
  if (code == 2 || code == 3) {
    verdict.remark = "not restarted: exit code " + std::to_string(code) + " means " +
                     (code == 2 ? "a wrong command line or configuration" : "unusable data") +
                     ", which would fail again";
    return verdict;
  }
  if (budget.used >= budget.max) {
    verdict.remark = "not restarted: all " + std::to_string(budget.max) + " restarts are used";
    return verdict;
  }
  verdict.action = AfterAttempt::kRestart;
  verdict.delay_s = restart_delay(budget);
  verdict.remark =
      "restart " + std::to_string(budget.used + 1) + " of " + std::to_string(budget.max);
  return verdict;
}

}  // namespace tessera
