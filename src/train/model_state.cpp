#include "train/model_state.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <map>
#include <span>
#include <utility>

#include "base/error.h"

namespace tessera {
namespace {

// A named tensor's part on this rank.
struct NamedPart {
  std::string name;  // in the checkpoint
  const ParameterSpec* spec;
  std::int64_t begin, end;
  at::Tensor values;  // (end - begin)
  int flat;           // its flat unit
  bool is_weight;
};

// The same names in the same order on every rank.
void visit_parts(std::vector<FlatUnit>& units, const Optimizer* optimizer,
                 const std::function<void(const NamedPart&)>& visit) {
  for (std::size_t flat = 0; flat < units.size(); ++flat) {
    units[flat].visit([&](const LocalPart& part) {
      NamedPart named{.name = part.spec->name,
                      .spec = part.spec,
                      .begin = part.begin,
                      .end = part.end,
                      .values = part.parameters,
                      .flat = static_cast<int>(flat),
                      .is_weight = true};
      visit(named);
      if (optimizer == nullptr) return;
      named.is_weight = false;
      const std::vector<std::string> names = optimizer->state_names();
      for (std::size_t s = 0; s < part.state.size(); ++s) {
        named.name = names[s] + "/" + part.spec->name;
        named.values = part.state[s];
        visit(named);
      }
    });
  }
}

at::Tensor on_host(const at::Tensor& tensor) {
  return tensor.device().is_cpu() ? tensor : at::empty(tensor.sizes(), at::kFloat);
}

}  // namespace

CheckpointSlices checkpoint_slices(std::vector<FlatUnit>& units, const Optimizer& optimizer) {
  std::vector<SliceGroup> groups = {{.stem = "model", .slices = {}},
                                    {.stem = "optimizer", .slices = {}}};
  auto copies = std::make_shared<std::vector<at::Tensor>>();
  visit_parts(units, &optimizer, [&](const NamedPart& part) {
    if (part.begin == part.end) return;
    const bool here = part.values.device().is_cpu();
    const at::Tensor host = here ? part.values : copies->emplace_back(part.values.cpu());
    groups[part.is_weight ? 0 : 1].slices.push_back(
        {.name = part.name,
         .dtype = Dtype::kF32,
         .shape = part.spec->shape,
         .begin = part.begin,
         .end = part.end,
         .data = reinterpret_cast<const std::byte*>(host.const_data_ptr<float>()),
         .region = here ? part.flat : Slice::kNeverRewritten});
  });
  if (copies->empty()) return {std::move(groups), nullptr};
  return {std::move(groups), std::move(copies)};
}

void fill_own_parts(std::vector<FlatUnit>& units, const Optimizer* optimizer,
                    const ReadElements& read) {
  visit_parts(units, optimizer, [&](const NamedPart& part) {
    if (part.begin == part.end) return;
    const at::Tensor host = on_host(part.values);
    read(part.name, part.begin, host);
    if (!host.is_same(part.values)) part.values.copy_(host);
  });
}

void fill_from_first(std::vector<FlatUnit>& units, const Optimizer* optimizer, Communicator& world,
                     const at::Device& device, const ReadElements& read) {
  constexpr std::int64_t kPiece = 4 << 20;  // elements
  visit_parts(units, optimizer, [&](const NamedPart& part) {
    const std::int64_t size = part.spec->elements();
    for (std::int64_t first = 0; first < size; first += kPiece) {
      at::Tensor piece = at::empty({std::min(kPiece, size - first)}, at::kFloat);
      if (world.rank() == 0) read(part.name, first, piece);
      piece = piece.to(device);
      world.note("reading " + part.name);
      world.broadcast(piece, 0)->wait();
      const std::int64_t begin = std::max(part.begin, first);
      const std::int64_t end = std::min(part.end, first + piece.numel());
      if (begin >= end) continue;
      part.values.narrow(0, begin - part.begin, end - begin)
          .copy_(piece.narrow(0, begin - first, end - begin));
    }
  });
}

ReadElements read_from(const CheckpointReader& checkpoint, std::vector<FlatUnit>& units,
                       const Optimizer* optimizer) {
  visit_parts(units, optimizer, [&](const NamedPart& part) {
    const TensorSpec* spec = checkpoint.find(part.name);
    if (spec != nullptr && spec->shape == part.spec->shape && spec->dtype == Dtype::kF32) return;
    throw Error(
        ErrorKind::kCorrupt,
        "the checkpoint " +
            std::string(spec == nullptr ? "lacks the tensor " : "has another shape or type of ") +
            part.name,
        checkpoint.path().string(), "It belongs to another model; use another run folder.");
  });
  return [&checkpoint](const std::string& name, std::int64_t first, const at::Tensor& out) {
    checkpoint.read_range(name, first, first + out.numel(),
                          std::as_writable_bytes(std::span(out.mutable_data_ptr<float>(),
                                                           static_cast<std::size_t>(out.numel()))));
  };
}

void restore(const CheckpointReader& checkpoint, std::vector<FlatUnit>& units,
             const Optimizer* optimizer) {
  fill_own_parts(units, optimizer, read_from(checkpoint, units, optimizer));
}

}  // namespace tessera
