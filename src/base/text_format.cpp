#include "base/text_format.h"

#include <array>
#include <cmath>
#include <cstdio>
#include <string_view>

namespace tessera {
namespace {

// Years of seconds: beyond it a duration is not worth telling.
constexpr double kLongestSeconds = 1e9;

std::string print(const char* format, double value) {
  std::array<char, 352> text;  // the largest double in full has 309 digits before its point
  const int length = std::snprintf(text.data(), text.size(), format, value);
  return std::string(text.data(), static_cast<std::size_t>(length));
}

std::string clock_text(double seconds, bool hours_always) {
  const auto whole = static_cast<long>(std::llround(seconds));
  std::array<char, 64> text;
  const long hours = whole / 3600, minutes = whole / 60 % 60, rest = whole % 60;
  if (hours_always) {
    std::snprintf(text.data(), text.size(), "%02ld:%02ld:%02ld", hours, minutes, rest);
  } else if (hours > 0) {
    std::snprintf(text.data(), text.size(), "%ld:%02ld:%02ld", hours, minutes, rest);
  } else {
    std::snprintf(text.data(), text.size(), "%02ld:%02ld", minutes, rest);
  }
  return text.data();
}

bool tellable(double seconds) { return seconds >= 0 && seconds < kLongestSeconds; }

}  // namespace

std::string format_count(std::int64_t count) {
  std::string digits = std::to_string(count);
  const std::size_t first = count < 0 ? 1 : 0;
  for (std::size_t end = digits.size(); end > first + 3; end -= 3) digits.insert(end - 3, 1, ',');
  return digits;
}

std::string format_short_count(double count) {
  if (!std::isfinite(count)) return format_fixed(count, 0);
  constexpr std::string_view kUnits = " KMBT";
  std::size_t unit = 0;
  // 999.95 would round to 1000.0: it belongs to the next unit.
  while (std::abs(count) >= (unit == 0 ? 999.5 : 999.95) && unit + 1 < kUnits.size()) {
    count /= 1000;
    ++unit;
  }
  if (unit == 0) return print("%.0f", count);
  return print("%.1f", count) + kUnits[unit];
}

std::string format_bytes(std::uint64_t bytes) {
  if (bytes < 1024) return std::to_string(bytes) + "B";
  constexpr std::array<const char*, 5> kUnits{"KiB", "MiB", "GiB", "TiB", "PiB"};
  double value = static_cast<double>(bytes) / 1024;
  std::size_t unit = 0;
  while (value >= 1023.95 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  return print("%.1f", value) + kUnits[unit];
}

std::string format_duration(double seconds) {
  return tellable(seconds) ? clock_text(seconds, true) : "--:--:--";
}

std::string format_short_duration(double seconds) {
  return tellable(seconds) ? clock_text(seconds, false) : "?";
}

std::string format_fixed(double value, int decimals) {
  if (std::isnan(value)) return "nan";  // printf may print "-nan"
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  std::array<char, 16> format;
  std::snprintf(format.data(), format.size(), "%%.%df", decimals);
  return print(format.data(), value);
}

}  // namespace tessera
