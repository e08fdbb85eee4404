#include "parallel/flat_unit.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/error.h"
#include "ops/host_pool.h"
#include "ops/random_normal.h"

namespace tessera {
namespace {

constexpr std::int64_t kAlignment = 16;  // elements: 64 bytes of f32

std::int64_t round_up(std::int64_t elements, std::int64_t multiple) {
  return (elements + multiple - 1) / multiple * multiple;
}

at::Tensor view_of(const at::Tensor& flat, const ParameterPlace& place) {
  return flat.narrow(0, place.offset, place.spec.elements()).view(place.spec.shape);
}

// A flat tensor without memory, for give_memory(). Its storage has its size nevertheless: views
// are checked against it.
at::Tensor tensor_without_memory(std::int64_t elements, const at::TensorOptions& options) {
  at::Tensor tensor = at::empty({0}, options);
  tensor.unsafeGetTensorImpl()->set_sizes_contiguous({elements});
  tensor.storage().unsafeGetStorageImpl()->set_nbytes(static_cast<std::size_t>(elements) *
                                                      tensor.element_size());
  return tensor;
}

bool has_memory(const at::Tensor& tensor) { return tensor.storage().data() != nullptr; }

// All views of the tensor see the new memory: they share its storage.
void give_memory(const at::Tensor& tensor) {
  c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
  storage->set_data_ptr_noswap(storage->allocator()->allocate(storage->nbytes()));
}

void take_memory(const at::Tensor& tensor) {
  c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
  storage->set_data_ptr_noswap(c10::DataPtr(nullptr, storage->device()));
}

using GroupKey = std::pair<bool, bool>;  // trainable, persistent

}  // namespace

std::vector<ParameterGroup> lay_out(const std::vector<Unit*>& units, const LayoutOptions& options) {
  std::vector<ParameterGroup> groups;
  for (Unit* unit : units) {
    for (ParameterSpec& spec : unit->parameters()) {
      const bool persistent = options.shards > 1 && spec.elements() < options.persistence_threshold;
      auto group = std::find_if(groups.begin(), groups.end(), [&](const ParameterGroup& other) {
        return other.trainable == spec.trainable && other.persistent == persistent;
      });
      if (group == groups.end()) {
        groups.push_back({.trainable = spec.trainable, .persistent = persistent, .classes = {}});
        group = groups.end() - 1;
      }
      auto target = std::find_if(group->classes.begin(), group->classes.end(),
                                 [&](const auto& other) { return other.decay == spec.decay; });
      if (target == group->classes.end()) {
        group->classes.push_back({.decay = spec.decay, .places = {}});
        target = group->classes.end() - 1;
      }
      target->places.push_back({.spec = std::move(spec), .offset = 0});
    }
  }
  for (ParameterGroup& group : groups) {
    std::int64_t used = 0;
    for (ParameterClass& parameters : group.classes) {
      parameters.begin = used;
      for (ParameterPlace& place : parameters.places) {
        place.offset = used;
        used += round_up(place.spec.elements(), kAlignment);
      }
      parameters.end = used;
    }
    group.elements = round_up(used, kAlignment * options.shards);
  }
  return groups;
}

std::int64_t trainable_elements(const std::vector<ParameterGroup>& groups) {
  std::int64_t elements = 0;
  for (const ParameterGroup& group : groups) {
    if (group.trainable) elements += group.elements;
  }
  return elements;
}

FlatUnit::FlatUnit(std::vector<Unit*> units, const Options& options, const Optimizer* optimizer,
                   const at::Tensor& gradients)
    : units_(std::move(units)),
      name_(units_.size() == 1 ? units_.front()->name()
                               : units_.front()->name() + " to " + units_.back()->name()),
      options_(options),
      groups_(lay_out(units_, {.shards = options.shards,
                               .persistence_threshold = options.persistence_threshold})) {
  allocate(optimizer, gradients);
  make_shards();
  make_views();
}

void FlatUnit::allocate(const Optimizer* optimizer, const at::Tensor& gradients) {
  const auto f32 = at::TensorOptions().dtype(at::kFloat).device(options_.device);
  const auto zeros = [&](std::int64_t elements) {
    return options_.host ? host_zeros(elements, options_.device) : at::zeros({elements}, f32);
  };
  std::int64_t gradients_used = 0;
  for (const ParameterGroup& group : groups_) {
    const std::int64_t own = group.elements / options_.shards;
    Memory memory;
    memory.parameters = zeros(own);
    memory.full = gathers()
                      ? tensor_without_memory(group.elements, f32.dtype(options_.compute_dtype))
                      : memory.parameters;
    if (options_.train && group.trainable) {
      memory.gradient = gradients.defined() ? gradients.narrow(0, gradients_used, own) : zeros(own);
      gradients_used += own;
      memory.full_gradient =
          reduces() ? tensor_without_memory(group.elements, f32) : memory.gradient;
      for (std::size_t i = 0; optimizer != nullptr && i < optimizer->state_names().size(); ++i) {
        memory.state.push_back(zeros(own));
      }
    }
    memory_.push_back(std::move(memory));
  }
}

// The classes' parts that lie in this rank's shard.
void FlatUnit::make_shards() {
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    const std::int64_t own = groups_[g].elements / options_.shards, first = own * options_.shard;
    for (const ParameterClass& parameters : groups_[g].classes) {
      const std::int64_t begin = std::max(parameters.begin, first) - first;
      const std::int64_t end = std::min(parameters.end, first + own) - first;
      if (begin >= end) continue;
      const auto part = [&](const at::Tensor& flat) {
        return flat.defined() ? flat.narrow(0, begin, end - begin) : flat;
      };
      FlatShard shard{.parameters = part(memory_[g].parameters),
                      .gradient = part(memory_[g].gradient),
                      .state = {},
                      .decay = parameters.decay};
      for (const at::Tensor& state : memory_[g].state) shard.state.push_back(part(state));
      shards_.push_back(std::move(shard));
    }
  }
}

void FlatUnit::make_views() {
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    for (const ParameterClass& parameters : groups_[g].classes) {
      for (const ParameterPlace& place : parameters.places) {
        // detach(): a leaf of its own, that shares memory but not the version counter's history of
        // views.
        at::Tensor view = view_of(memory_[g].full, place).detach();
        if (options_.train && groups_[g].trainable) {
          view.set_requires_grad(true);
          // Autograd adds into a gradient that is already there; a bf16 one is added into this f32
          // view.
          view.mutable_grad() = view_of(memory_[g].full_gradient, place);
        }
        *place.spec.slot = std::move(view);
      }
    }
  }
}

void FlatUnit::visit(const std::function<void(const LocalPart&)>& visitor) const {
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    const std::int64_t own = groups_[g].elements / options_.shards, first = own * options_.shard;
    for (const ParameterClass& parameters : groups_[g].classes) {
      for (const ParameterPlace& place : parameters.places) {
        const std::int64_t size = place.spec.elements();
        const std::int64_t begin = std::clamp<std::int64_t>(first - place.offset, 0, size);
        const std::int64_t end = std::clamp<std::int64_t>(first + own - place.offset, begin, size);
        const auto part = [&](const at::Tensor& flat) {
          if (!flat.defined()) return flat;
          const std::int64_t at = begin == end ? 0 : place.offset + begin - first;
          return flat.narrow(0, at, end - begin);
        };
        LocalPart local{.spec = &place.spec,
                        .begin = begin,
                        .end = end,
                        .parameters = part(memory_[g].parameters),
                        .gradient = part(memory_[g].gradient),
                        .state = {}};
        for (const at::Tensor& state : memory_[g].state) local.state.push_back(part(state));
        visitor(local);
      }
    }
  }
}

void FlatUnit::initialise(std::uint64_t seed) {
  visit([&](const LocalPart& part) {
    at::Tensor weight = part.parameters;
    if (weight.numel() == 0) return;
    switch (part.spec->init.kind) {
      case Initialisation::Kind::kZeros: weight.zero_(); break;
      case Initialisation::Kind::kOnes: weight.fill_(1); break;
      case Initialisation::Kind::kNormal: {
        // Drawn on the host, so that every device starts from the same bits.
        at::Tensor host = weight.device().is_cpu() ? weight : at::zeros(weight.sizes(), at::kFloat);
        fill_normal(host, part.spec->init.std, seed, part.spec->name, part.begin);
        if (!weight.device().is_cpu()) weight.copy_(host);
        break;
      }
    }
  });
  parameters_changed();
}

at::Tensor FlatUnit::master(const std::string& name) const {
  at::Tensor found;
  visit([&](const LocalPart& part) {
    if (part.spec->name != name) return;
    if (part.end - part.begin != part.spec->elements()) {
      throw Error(ErrorKind::kInternal, "this rank holds only a part of " + name);
    }
    found = part.parameters.view(part.spec->shape);
  });
  return found;
}

at::Tensor FlatUnit::gradient(const std::string& name) const {
  at::Tensor found;
  visit([&](const LocalPart& part) {
    if (part.spec->name != name || !part.gradient.defined()) return;
    if (part.end - part.begin != part.spec->elements()) {
      throw Error(ErrorKind::kInternal, "this rank holds only a part of the gradient of " + name);
    }
    found = part.gradient.view(part.spec->shape);
  });
  return found;
}

at::Tensor FlatUnit::compute_view(const std::string& name) const {
  for (const ParameterGroup& group : groups_) {
    for (const ParameterClass& parameters : group.classes) {
      for (const ParameterPlace& place : parameters.places) {
        if (place.spec.name == name) return *place.spec.slot;
      }
    }
  }
  return {};
}

bool FlatUnit::gathers() const { return reduces() || options_.compute_dtype != at::kFloat; }

at::Tensor FlatUnit::own_part(const at::Tensor& full) const {
  const std::int64_t own = full.numel() / options_.shards;
  return full.narrow(0, own * options_.shard, own);
}

void FlatUnit::begin_gather(Communicator& shard_group) {
  if (!gathers()) return;
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    const at::Tensor full = memory_[g].full.data(), &shard = memory_[g].parameters;
    if (has_memory(full) && (fresh_ || (reduces() && !groups_[g].persistent))) continue;
    if (!has_memory(full)) give_memory(full);
    const bool as_it_is =
        shard.scalar_type() == full.scalar_type() && shard.device() == full.device();
    const at::Tensor own = own_part(full);
    if (!as_it_is || options_.shards == 1) own.copy_(shard, /*non_blocking=*/true);
    if (options_.shards == 1) continue;
    shard_group.note("parameters of " + name_);
    gathering_.push_back(shard_group.all_gather(full, as_it_is ? shard : own));
  }
  fresh_ = true;
}

void FlatUnit::wait_gathered() {
  for (std::unique_ptr<Work>& work : std::exchange(gathering_, {})) work->wait();
}

void FlatUnit::free_parameters() {
  wait_gathered();
  if (!reduces()) return;
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    if (!groups_[g].persistent && has_memory(memory_[g].full)) take_memory(memory_[g].full);
  }
}

void FlatUnit::require_gradients() {
  if (!options_.train || !reduces()) return;
  finish_reduction();  // of the micro-batch before: what comes now is not a part of it
  for (const Memory& memory : memory_) {
    if (!memory.full_gradient.defined() || has_memory(memory.full_gradient)) continue;
    give_memory(memory.full_gradient);
    memory.full_gradient.data().zero_();
  }
}

void FlatUnit::begin_reduction(Communicator& shard_group) {
  require_gradients();
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    const Memory& memory = memory_[g];
    if (!memory.full_gradient.defined() || !reduces()) continue;
    Reduction reduction{.group = g, .input = memory.full_gradient, .output = {}, .work = nullptr};
    if (options_.reduce_dtype != at::kFloat && options_.shards > 1) {
      reduction.input = memory.full_gradient.to(options_.reduce_dtype);
      take_memory(memory.full_gradient);
    }
    const bool straight = first_reduction_ && reduction.input.scalar_type() == at::kFloat &&
                          memory.gradient.device() == reduction.input.device();
    reduction.output = straight ? memory.gradient
                                : at::empty({memory.gradient.numel()}, reduction.input.options());
    shard_group.note("gradients of " + name_);
    reduction.work =
        shard_group.reduce_scatter(reduction.output, reduction.input, ReduceOperation::kSum);
    reductions_.push_back(std::move(reduction));
  }
}

void FlatUnit::finish_reduction() {
  if (reductions_.empty()) return;
  for (Reduction& reduction : std::exchange(reductions_, {})) {
    reduction.work->wait();
    const Memory& memory = memory_[reduction.group];
    if (!reduction.output.is_same(memory.gradient)) {
      if (first_reduction_) {
        memory.gradient.copy_(reduction.output);
      } else {
        memory.gradient.add_(reduction.output.to(memory.gradient.options()));
      }
    }
    if (has_memory(memory.full_gradient)) take_memory(memory.full_gradient);
  }
  first_reduction_ = false;
}

void FlatUnit::clear_gradients() {
  first_reduction_ = true;
  if (reduces()) return;  // the first reduction of the next step writes over them
  for (const Memory& memory : memory_) {
    if (memory.gradient.defined()) memory.gradient.zero_();
  }
}

std::int64_t FlatUnit::parameter_bytes() const {
  std::int64_t bytes = 0;
  for (const Memory& memory : memory_) {
    bytes += static_cast<std::int64_t>(memory.parameters.nbytes());
    if (gathers() && !reduces()) bytes += static_cast<std::int64_t>(memory.full.nbytes());
  }
  return bytes;
}

std::int64_t FlatUnit::gradient_bytes() const {
  std::int64_t bytes = 0;
  for (const Memory& memory : memory_) {
    if (memory.gradient.defined()) bytes += static_cast<std::int64_t>(memory.gradient.nbytes());
  }
  return bytes;
}

std::int64_t FlatUnit::optimizer_bytes() const {
  std::int64_t bytes = 0;
  for (const Memory& memory : memory_) {
    for (const at::Tensor& state : memory.state) bytes += static_cast<std::int64_t>(state.nbytes());
  }
  return bytes;
}

}  // namespace tessera
