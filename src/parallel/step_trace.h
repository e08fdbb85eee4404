// What happened when in a step of one rank, for a viewer of traces. Owns: the record and its text
// (Trace Event Format, as chrome://tracing and Perfetto read it). Not: which step, nor the file.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "parallel/communicator.h"

namespace tessera {

class StepTrace {
 public:
  using Clock = std::chrono::steady_clock;

  // Records from now on, what was recorded before is forgotten; until stop().
  void start();
  void stop();
  bool on() const { return on_; }

  // `lane`: "compute", "shard", … Nothing while it is off.
  void add(std::string_view lane, std::string_view name, Clock::time_point begin,
           Clock::time_point end);
  std::string json(int rank) const;

 private:
  struct Span {
    std::string lane, name;
    Clock::time_point begin, end;
  };
  bool on_ = false;
  Clock::time_point start_;
  mutable std::mutex mutex_;  // works may be waited for on another thread
  std::vector<Span> spans_;
};

// The communicator; each operation is recorded in `lane` from the moment it was asked for until its
// result was waited for and there (it may have been done before), and in "waiting" while that kept
// the rank from computing. `trace` outlives it.
std::unique_ptr<Communicator> make_traced_communicator(std::unique_ptr<Communicator> communicator,
                                                       std::string lane, StepTrace& trace);

}  // namespace tessera
