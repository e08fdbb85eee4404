#include "train/plan_rows.h"

#include "base/text_format.h"

namespace tessera {
namespace {

const char* key_of(Holding holding) {
  switch (holding) {
    case Holding::kParameters: return "parameters";
    case Holding::kGathered: return "gathered";
    case Holding::kGradients: return "gradients";
    case Holding::kFullGradients: return "full_gradients";
    case Holding::kOptimizer: return "optimizer";
    case Holding::kActivations: return "activations";
    case Holding::kWorking: return "working";
    case Holding::kLogits: return "logits";
    case Holding::kCommunication: return "communication";
    case Holding::kHost: return "host";
  }
  return "?";
}

}  // namespace

std::string plan_row(const std::string& label, const std::string& value) {
  return label + std::string(label.size() < 18 ? 18 - label.size() : 1, ' ') + value + "\n";
}

std::string bytes_text(std::int64_t bytes) {
  return format_bytes(static_cast<std::uint64_t>(bytes));
}

std::string model_text(const Gpt2Shape& shape) {
  return std::to_string(shape.n_layer) + " layers, " + std::to_string(shape.n_head) +
         " heads, width " + std::to_string(shape.n_embd) + ", context " +
         std::to_string(shape.n_positions) + ", vocabulary " + format_count(shape.vocab_size);
}

std::string mesh_text(const MeshLayout& layout) {
  const int ranks = layout.mesh.world_size();
  std::string text = std::to_string(ranks) + " (" + to_string(layout.mesh) + ")";
  if (layout.ranks_per_node > 0 && layout.ranks_per_node < ranks) {
    text += ", " + std::to_string(layout.ranks_per_node) + " a node";
  }
  if (layout.two_level) text += ", gathers in two levels";
  return text;
}

std::string batch_text(std::int64_t global_rows, std::int64_t micro_rows,
                       std::int64_t micro_batches, int ranks) {
  return std::to_string(global_rows) + " sequences a step in " + std::to_string(micro_batches) +
         " micro-batches of at most " + std::to_string(micro_rows) +
         (ranks > 1 ? " on each rank" : "");
}

std::string memory_text(const MemoryPlan& plan) {
  return bytes_text(plan.total()) + ": " + describe(plan);
}

NamedBytes named(const MemoryPlan& plan) {
  NamedBytes values;
  for (std::size_t i = 0; i < kHoldings; ++i) {
    const auto holding = static_cast<Holding>(i);
    values.emplace_back(key_of(holding),
                        holding == Holding::kHost ? plan.host : plan.peak[holding]);
  }
  values.emplace_back("total", plan.total());
  return values;
}

}  // namespace tessera
