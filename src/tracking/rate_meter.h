// Tokens a second between two events. Owns: the clock arithmetic.
#pragma once

#include <chrono>
#include <cstdint>

namespace tessera {

// All tokens since the last take() over all the time since then, less what was excluded: so an
// interval's rate covers each of its steps, data loading included, and an evaluation between them
// does not make training look slow. Not thread-safe.
class RateMeter {
 public:
  using Clock = std::chrono::steady_clock;
  explicit RateMeter(Clock::time_point (*now)() = &Clock::now) : now_(now), since_(now()) {}

  void restart();  // forget what was counted; the first interval begins now
  void add_tokens(std::int64_t count) { tokens_ += count; }  // over all ranks
  void exclude(double seconds) {
    excluded_ += seconds;
  }               // time that was not training: evaluation, samples
  double take();  // tokens a second; 0 if no time passed. Begins the next interval

 private:
  Clock::time_point (*now_)();
  Clock::time_point since_;
  std::int64_t tokens_ = 0;
  double excluded_ = 0;
};

}  // namespace tessera
