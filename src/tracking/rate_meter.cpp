#include "tracking/rate_meter.h"

namespace tessera {

void RateMeter::restart() {
  since_ = now_();
  tokens_ = 0;
  excluded_ = 0;
}

double RateMeter::take() {
  const auto now = now_();
  const double seconds = std::chrono::duration<double>(now - since_).count() - excluded_;
  const double rate = seconds > 0 ? static_cast<double>(tokens_) / seconds : 0;
  since_ = now;
  tokens_ = 0;
  excluded_ = 0;
  return rate;
}

}  // namespace tessera
