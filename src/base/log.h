// Messages to the person at the terminal: stderr, one line each. Owns: levels and prefixes. Not:
// metrics (tracking/).
#pragma once

#include <functional>
#include <mutex>
#include <string>
#include <string_view>

namespace tessera {

enum class LogLevel { kQuiet, kNormal, kVerbose };  // -q, default, -v

// Passed by reference to whoever speaks; there is no global one. Thread-safe.
class Log {
 public:
  using Writer = std::function<void(std::string_view line)>;  // gets each line without its newline
  explicit Log(LogLevel level = LogLevel::kNormal, Writer writer = write_to_stderr);

  void info(std::string_view message);     // hidden by -q
  void detail(std::string_view message);   // shown by -v
  void warning(std::string_view message);  // always, prefixed "warning: "
  LogLevel level() const { return level_; }

  static void write_to_stderr(std::string_view line);

 private:
  void write(std::string_view message);
  LogLevel level_;
  Writer writer_;
  std::mutex mutex_;
};

}  // namespace tessera
