#include "tracking/tracker.h"

#include <exception>
#include <string>
#include <utility>

namespace tessera {
namespace {

// What the current exception says.
std::string current_reason() {
  try {
    throw;
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "unknown exception";
  }
}

}  // namespace

void Tracker::add(std::unique_ptr<Sink> sink) {
  const std::lock_guard lock(mutex_);
  sinks_.push_back(std::move(sink));
}

void Tracker::emit(const Event& event) noexcept {
  const std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < sinks_.size();) {
    try {
      sinks_[i]->on(event);
      ++i;
    } catch (...) {
      const std::unique_ptr<Sink> failed = std::move(sinks_[i]);
      sinks_.erase(sinks_.begin() + static_cast<std::ptrdiff_t>(i));
      try {
        log_.warning("the " + std::string(failed->name()) +
                     " is switched off: " + current_reason() + " Training goes on without it.");
      } catch (...) {
        // The log is broken too: there is nobody left to tell.
      }
    }
  }
}

std::size_t Tracker::sink_count() const {
  const std::lock_guard lock(mutex_);
  return sinks_.size();
}

}  // namespace tessera
