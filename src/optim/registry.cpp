#include "optim/registry.h"

#include "base/registry.h"
#include "optim/adamw.h"

namespace tessera {
namespace {

struct Entry {
  std::string_view name;
  std::unique_ptr<Optimizer> (*make)(const OptimConfig&);
};

constexpr Entry kOptimizers[] = {
    {"adamw",
     [](const OptimConfig& config) -> std::unique_ptr<Optimizer> {
       return std::make_unique<AdamW>(AdamWOptions{.beta1 = config.betas[0],
                                                   .beta2 = config.betas[1],
                                                   .epsilon = config.eps,
                                                   .weight_decay = config.weight_decay});
     }},
};

}  // namespace

std::unique_ptr<Optimizer> make_optimizer(const OptimConfig& config) {
  return find_in_registry(kOptimizers, config.name, "optimizer").make(config);
}

}  // namespace tessera
