#include "parallel/step_plan.h"

#include <algorithm>
#include <utility>

namespace tessera {
namespace {

std::int64_t elements_of(Unit& unit) {
  std::int64_t elements = 0;
  for (const ParameterSpec& parameter : unit.parameters()) elements += parameter.elements();
  return elements;
}

std::vector<FlatUnitSpan> wrap_units(const Chain& chain, const StepPolicy& policy) {
  const int units = static_cast<int>(chain.units.size());
  if (policy.wrap == Wrap::kNone) return {{.first = 0, .last = units - 1, .users = {}}};
  std::vector<FlatUnitSpan> spans;
  std::int64_t elements = 0;  // of the last span
  for (int unit = 0; unit < units; ++unit) {
    const bool grows =
        policy.wrap == Wrap::kSize && !spans.empty() && elements < policy.min_num_params;
    if (grows) {
      spans.back().last = unit;
    } else {
      spans.push_back({.first = unit, .last = unit, .users = {}});
      elements = 0;
    }
    elements += elements_of(*chain.units[static_cast<std::size_t>(unit)]);
  }
  // What is left at the end joins the one before: only a model that is smaller as a whole stays
  // below the minimum.
  if (policy.wrap == Wrap::kSize && spans.size() > 1 && elements < policy.min_num_params) {
    const int last = spans.back().last;
    spans.pop_back();
    spans.back().last = last;
  }
  return spans;
}

void add_users(const Chain& chain, FlatUnitPlan& plan) {
  for (const Tie& tie : chain.ties) {
    const int user = static_cast<int>(tie.user_unit);
    if (user >= plan.span.first && user <= plan.span.last) continue;
    for (const ParameterGroup& group : plan.groups) {
      for (const ParameterClass& parameters : group.classes) {
        const bool owns =
            std::any_of(parameters.places.begin(), parameters.places.end(),
                        [&](const auto& place) { return place.spec.name == tie.owner; });
        if (owns) plan.span.users.push_back(user);
      }
    }
  }
}

int lowest_trainable(const Chain& chain) {
  for (std::size_t unit = 0; unit < chain.units.size(); ++unit) {
    const std::vector<ParameterSpec> parameters = chain.units[unit]->parameters();
    if (std::any_of(parameters.begin(), parameters.end(),
                    [](const ParameterSpec& parameter) { return parameter.trainable; })) {
      return static_cast<int>(unit);
    }
  }
  return static_cast<int>(chain.units.size());
}

// The first unit has no input to start again from, and the last one makes the loss at once.
std::vector<Checkpointing> checkpointing_of(std::size_t units, const StepPolicy& policy) {
  std::vector<Checkpointing> result(units, Checkpointing::kNone);
  for (std::size_t unit = 1; unit + 1 < units; ++unit) {
    if ((unit - 1) % static_cast<std::size_t>(policy.checkpoint_every) == 0) {
      result[unit] = policy.checkpointing;
    }
  }
  return result;
}

}  // namespace

StepPlan plan_step(const Chain& chain, const Mesh& mesh, const StepPolicy& policy) {
  StepPlan plan;
  std::vector<std::int64_t> gradient_bytes;
  for (FlatUnitSpan& span : wrap_units(chain, policy)) {
    std::vector<Unit*> units;
    for (int unit = span.first; unit <= span.last; ++unit) {
      units.push_back(chain.units[static_cast<std::size_t>(unit)].get());
    }
    FlatUnitPlan flat{
        .span = std::move(span),
        .groups = lay_out(
            units, {.shards = mesh.shard, .persistence_threshold = policy.persistence_threshold})};
    add_users(chain, flat);
    const std::int64_t trainable = trainable_elements(flat.groups);
    flat.span.sharded = mesh.shard > 1 || policy.host_shards;
    flat.span.trainable = trainable > 0;
    for (const ParameterGroup& group : flat.groups) {
      if (!group.persistent) flat.span.elements += group.elements;
    }
    flat.shard_gradient_elements = trainable / mesh.shard;
    gradient_bytes.push_back(flat.shard_gradient_elements * 4);
    plan.flat_units.push_back(std::move(flat));
  }
  ScheduleInputs& inputs = plan.inputs;
  for (const auto& unit : chain.units) inputs.unit_names.push_back(unit->name());
  for (const FlatUnitPlan& flat : plan.flat_units) inputs.flat_units.push_back(flat.span);
  inputs.mesh = mesh;
  if (mesh.replica > 1) inputs.buckets = plan_buckets(gradient_bytes, policy.bucket_bytes);
  inputs.reduce = policy.reduce;
  inputs.lowest_trainable = lowest_trainable(chain);
  inputs.reshard_after_forward = policy.reshard_after_forward;
  inputs.backward_prefetch = policy.backward_prefetch;
  inputs.forward_prefetch = policy.forward_prefetch;
  inputs.gather_limit = policy.gather_limit;
  inputs.live_limit = policy.live_limit;
  inputs.checkpointing = checkpointing_of(chain.units.size(), policy);
  inputs.offload_horizon = policy.offload_horizon;
  return plan;
}

}  // namespace tessera
