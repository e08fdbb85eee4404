#include "inference/stop_text.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace tessera {

StopText::StopText(std::vector<std::string> stops) : stops_(std::move(stops)) {
  for (const std::string& stop : stops_) {
    if (stop.empty()) {
      throw Error(ErrorKind::kUsage, "a stop string is empty: it would stop before the first token",
                  {}, "Give text, or leave it out.");
    }
  }
}

bool StopText::append(std::string_view bytes) {
  const std::size_t before = text_.size();
  text_ += bytes;
  std::size_t first_end = std::string::npos, cut = std::string::npos;
  for (const std::string& stop : stops_) {
    const std::size_t start = before < stop.size() ? 0 : before - stop.size() + 1;
    const std::size_t at = text_.find(stop, start);
    if (at == std::string::npos) continue;
    const std::size_t end = at + stop.size();
    if (first_end == std::string::npos || end < first_end || (end == first_end && at < cut)) {
      first_end = end;
      cut = at;
    }
  }
  if (cut == std::string::npos) return false;
  text_.resize(cut);
  stopped_ = true;
  return true;
}

std::size_t StopText::settled() const {
  if (stopped_) return text_.size();
  std::size_t held = 0;
  for (const std::string& stop : stops_) {
    for (std::size_t size = std::min(stop.size() - 1, text_.size()); size > held; --size) {
      if (text_.compare(text_.size() - size, size, stop, 0, size) == 0) held = size;
    }
  }
  return text_.size() - held;
}

}  // namespace tessera
