#include "optim/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/registry.h"

namespace tessera {

// t counts from 1; w = warm-up, D = decay steps; each formula holds for t > w. Definitions as
// PyTorch's and Hugging Face transformers' schedulers; tests/reference/lr_schedules.py makes the
// values that the test compares with.
struct LrFormulas {
  using S = const LrSchedule&;

  // Share of the way from the end of the warm-up to the end of the decay.
  static double progress(S s, std::int64_t t) {
    if (s.decay_steps_ <= s.warmup_) return 1.0;
    return std::min(
        1.0, static_cast<double>(t - s.warmup_) / static_cast<double>(s.decay_steps_ - s.warmup_));
  }
  static double between(S s, double share) {
    return s.config_.min_lr + (s.config_.lr - s.config_.min_lr) * share;
  }

  static double constant(S s, std::int64_t) { return s.config_.lr; }
  static double linear(S s, std::int64_t t) { return between(s, 1.0 - progress(s, t)); }
  static double cosine(S s, std::int64_t t) {
    return between(s, 0.5 * (1.0 + std::cos(std::numbers::pi * progress(s, t))));
  }
  static double wsd(S s, std::int64_t t) {
    const std::int64_t most = s.decay_steps_ - s.warmup_;
    if (most <= 0) return s.config_.min_lr;
    const auto wished = std::llround(s.config_.wsd_decay * static_cast<double>(s.decay_steps_));
    const std::int64_t length = std::clamp<std::int64_t>(wished, 1, most);
    if (t <= s.decay_steps_ - length) return s.config_.lr;
    const double share =
        static_cast<double>(t - s.decay_steps_ + length) / static_cast<double>(length);
    return between(s, 1.0 - std::min(1.0, share));
  }
  static double inverse_sqrt(S s, std::int64_t t) {
    constexpr double kWithoutWarmup = 10000;
    const double scale = s.warmup_ > 0 ? static_cast<double>(s.warmup_) : kWithoutWarmup;
    const double time = static_cast<double>(t) + (s.warmup_ > 0 ? 0.0 : kWithoutWarmup);
    return std::max(s.config_.min_lr, s.config_.lr * std::sqrt(scale / time));
  }
  static double exponential(S s, std::int64_t t) {
    return std::max(s.config_.min_lr, s.config_.lr * std::pow(s.config_.exponential_gamma,
                                                              static_cast<double>(t - s.warmup_)));
  }
  static double plateau(S s, std::int64_t) { return s.config_.lr * s.plateau_.factor; }
};

namespace {

struct Entry {
  std::string_view name;
  double (*formula)(const LrSchedule&, std::int64_t);
};

constexpr Entry kSchedules[] = {
    {"constant", LrFormulas::constant},
    {"linear", LrFormulas::linear},
    {"cosine", LrFormulas::cosine},
    {"wsd", LrFormulas::wsd},
    {"inverse_sqrt", LrFormulas::inverse_sqrt},
    {"exponential", LrFormulas::exponential},
    {"plateau", LrFormulas::plateau},
};

}  // namespace

LrSchedule::LrSchedule(const OptimConfig& config, std::int64_t total_steps)
    : config_(config),
      decay_steps_(config.decay_steps > 0 ? config.decay_steps : total_steps),
      warmup_(config.warmup < 1.0 ? std::llround(config.warmup * static_cast<double>(decay_steps_))
                                  : std::llround(config.warmup)),
      after_warmup_(
          find_in_registry(kSchedules, config.schedule, "learning-rate schedule").formula) {}

double LrSchedule::at(std::int64_t step) const {
  if (step > warmup_) return after_warmup_(*this, step);
  return config_.lr * plateau_.factor * static_cast<double>(step) / static_cast<double>(warmup_);
}

bool LrSchedule::observe(double evaluation_loss) {
  if (config_.schedule != "plateau") return false;
  constexpr double kThreshold = 1e-4, kSmallestChange = 1e-8;
  if (!plateau_.has_best || evaluation_loss < plateau_.best * (1.0 - kThreshold)) {
    plateau_ = {
        .factor = plateau_.factor, .best = evaluation_loss, .bad_evaluations = 0, .has_best = true};
    return false;
  }
  if (++plateau_.bad_evaluations <= config_.plateau_patience) return false;
  plateau_.bad_evaluations = 0;
  const double old_lr = config_.lr * plateau_.factor;
  const double new_lr = std::max(config_.min_lr, old_lr * config_.plateau_factor);
  if (old_lr - new_lr <= kSmallestChange) return false;
  plateau_.factor = new_lr / config_.lr;
  return true;
}

}  // namespace tessera
