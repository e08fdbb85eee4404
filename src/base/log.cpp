#include "base/log.h"

#include <cstdio>
#include <utility>

namespace tessera {

Log::Log(LogLevel level, Writer writer) : level_(level), writer_(std::move(writer)) {}

void Log::info(std::string_view message) {
  if (level_ != LogLevel::kQuiet) write(message);
}

void Log::detail(std::string_view message) {
  if (level_ == LogLevel::kVerbose) write(message);
}

void Log::warning(std::string_view message) { write("warning: " + std::string(message)); }

void Log::write_to_stderr(std::string_view line) {
  // One call, so that lines of several processes do not mix.
  std::string text(line);
  text += '\n';
  std::fwrite(text.data(), 1, text.size(), stderr);
}

void Log::write(std::string_view message) {
  const std::lock_guard lock(mutex_);
  writer_(message);
}

}  // namespace tessera
