// plan_text() and plan_json() of session.h: what --dry-run prints.
#include <nlohmann/json.hpp>

#include "base/machine.h"
#include "base/text_format.h"
#include "train/plan_rows.h"
#include "train/session.h"

namespace tessera {
namespace {

std::int64_t elements_of(Unit& unit) {
  std::int64_t count = 0;
  for (const ParameterSpec& parameter : unit.parameters()) count += parameter.elements();
  return count;
}

}  // namespace

std::string plan_text(const RunPlan& plan) {
  const MemoryPlan memory = plan_memory(plan.memory());
  std::string text;
  text += plan_row("run", plan.config().run.dir);
  text += plan_row("model", model_text(plan.shape));
  text += plan_row("parameters", format_count(plan.chain.parameter_count()));
  text += plan_row("device", plan.device.str());
  text += plan_row("precision", plan.precision.name + " (" + plan.precision.reason + ")");
  const int ranks = plan.request.world_size();
  if (ranks > 1) text += plan_row("ranks", mesh_text(plan.layout));
  text += plan_row("batch", batch_text(plan.batches.global_rows, plan.batches.micro_rows,
                                       plan.batches.micro_batches, ranks));
  text += plan_row("tokens a step", format_count(plan.tokens_per_step()));
  text += plan_row("steps", format_count(plan.total_steps) + ", " +
                                format_count(plan.steps_per_epoch) + " an epoch");
  text += plan_row("train tokens", format_count(plan.data.train->size()));
  text += plan_row("validation", format_count(plan.data.validation->size()) + " tokens");
  text += plan_row("memory a rank", memory_text(memory));
  const int sharers = plan.request.ranks_of_host();
  const std::uint64_t available =
      machine_facts().usable_memory_bytes() / static_cast<std::uint64_t>(sharers);
  if (plan.device.is_cpu() && static_cast<std::uint64_t>(memory.total()) > available) {
    text += plan_row("", "more than this machine has now" +
                             std::string(sharers > 1 ? " for each rank" : "") + " (" +
                             format_bytes(available) + "). " + memory_remedies(plan.memory()));
  }
  text += "units\n";
  for (const auto& unit : plan.chain.units) {
    text += "  " + plan_row(unit->name(), format_count(elements_of(*unit)) + " parameters");
  }
  return text;
}

std::string plan_json(const RunPlan& plan) {
  using nlohmann::json;
  json bytes;
  for (const auto& [name, value] : named(plan_memory(plan.memory()))) bytes[name] = value;
  json units = json::array();
  for (const auto& unit : plan.chain.units) {
    units.push_back({{"name", unit->name()}, {"parameters", elements_of(*unit)}});
  }
  const json text = {{"event", "plan"},
                     {"dir", plan.config().run.dir},
                     {"world_size", plan.request.world_size()},
                     {"parameters", plan.chain.parameter_count()},
                     {"vocab_size", plan.shape.vocab_size},
                     {"device", plan.device.str()},
                     {"precision", plan.precision.name},
                     {"global_batch_size", plan.batches.global_rows},
                     {"micro_batch_rows", plan.batches.micro_rows},
                     {"micro_batches", plan.batches.micro_batches},
                     {"tokens_per_step", plan.tokens_per_step()},
                     {"total_steps", plan.total_steps},
                     {"steps_per_epoch", plan.steps_per_epoch},
                     {"train_tokens", plan.data.train->size()},
                     {"validation_tokens", plan.data.validation->size()},
                     {"memory_bytes", bytes},
                     {"units", units}};
  return text.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
}

}  // namespace tessera
