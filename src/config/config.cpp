#include "config/config.h"

#include <algorithm>
#include <cmath>

namespace tessera {
namespace {

// GPT-2's sizes from its release; char is nanoGPT's small character model, smp-gpt2-xl and gpt2-30b
// are those of published large-scale training scripts.
constexpr ModelPreset kPresets[] = {
    {"tiny", 64, 2, 2, 64},
    {"char", 128, 4, 4, 64},
    {"gpt2", 768, 12, 12, 1024},
    {"gpt2-small", 768, 12, 12, 1024},
    {"gpt2-medium", 1024, 24, 16, 1024},
    {"gpt2-large", 1280, 36, 20, 1024},
    {"gpt2-xl", 1600, 48, 25, 1024},
    {"smp-gpt2-xl", 1536, 48, 24, 2048},
    {"gpt2-30b", 7168, 48, 64, 2048},
};

}  // namespace

std::int64_t Interval::in_steps(double steps_per_epoch) const {
  if (never()) return 0;
  const double steps = unit == Unit::kSteps ? count : count * steps_per_epoch;
  return std::max<std::int64_t>(1, std::llround(std::min(steps, 9e15)));
}

std::span<const ModelPreset> model_presets() { return kPresets; }

const ModelPreset* find_model_preset(std::string_view name) {
  for (const ModelPreset& preset : kPresets) {
    if (preset.name == name) return &preset;
  }
  return nullptr;
}

}  // namespace tessera
