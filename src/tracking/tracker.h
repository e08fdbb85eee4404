// Hands each event to every sink. Owns: the sinks and what happens when one fails. Rank 0 alone has
// sinks; a Tracker without any is what the other ranks use.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "tracking/events.h"

namespace tessera {

// A place where events go. May throw anything: the Tracker then drops it.
class Sink {
 public:
  virtual ~Sink() = default;
  virtual std::string_view name() const = 0;  // for the warning: "metrics file", "console"
  virtual void on(const Event& event) = 0;    // called by one thread at a time
};

// Thread-safe: a checkpoint writer may report from its own thread.
class Tracker {
 public:
  explicit Tracker(Log& log) : log_(log) {}
  Tracker(const Tracker&) = delete;
  Tracker& operator=(const Tracker&) = delete;

  void add(std::unique_ptr<Sink> sink);

  // In the order of add(). A sink that throws is dropped with one warning; training goes on.
  void emit(const Event& event) noexcept;

  std::size_t sink_count() const;

 private:
  Log& log_;
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<Sink>> sinks_;
};

}  // namespace tessera
