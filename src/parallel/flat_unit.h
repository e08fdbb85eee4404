// The parameters of one or several units in flat buffers, of which a rank keeps its shard. Owns:
// memory of master weights, gradients and optimizer state, the gathered parameters and full
// gradients while they exist, and the views that the units' forwards read. Not: when anything is
// gathered, reduced or stepped (Schedule, Executor).
//
// Source of the layout: PyTorch FSDP's FlatParameter (arXiv 2304.11277, section 4.1): parameters
// side by side in one buffer, padded and cut into equal shards, so that one collective moves all.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "parallel/communicator.h"
#include "unit/optimizer.h"
#include "unit/unit.h"

namespace tessera {

// A parameter's place in its group's flat buffer.
struct ParameterPlace {
  ParameterSpec spec;
  std::int64_t offset = 0;  // in elements; a multiple of 16 (64 bytes of f32)
};

// Parameters that the optimizer treats alike: elements [begin, end) of the group's buffer.
struct ParameterClass {
  bool decay = false;
  std::vector<ParameterPlace> places;
  std::int64_t begin = 0, end = 0;
};

// Parameters that are gathered and reduced by one operation.
struct ParameterGroup {
  bool trainable = true;
  bool persistent = false;  // stays gathered from one step to the next
  std::vector<ParameterClass> classes;
  std::int64_t elements = 0;  // with padding: a multiple of 16 × the number of shards
};

struct LayoutOptions {
  int shards = 1;
  // Parameters with fewer elements stay gathered, where there are several shards.
  std::int64_t persistence_threshold = 0;
};

// Layout alone: a pure function of the units' parameters; needs no memory.
std::vector<ParameterGroup> lay_out(const std::vector<Unit*>& units, const LayoutOptions& options);
// Elements of all trainable groups together.
std::int64_t trainable_elements(const std::vector<ParameterGroup>& groups);

// The part of a parameter that this rank holds: elements [begin, end), counted row-major; perhaps
// none.
struct LocalPart {
  const ParameterSpec* spec = nullptr;
  std::int64_t begin = 0, end = 0;
  at::Tensor parameters;          // (end - begin) f32, a view of the master weights
  at::Tensor gradient;            // likewise; undefined without one
  std::vector<at::Tensor> state;  // by Optimizer::state_names(); empty without
};

class FlatUnit {
 public:
  struct Options {
    at::ScalarType compute_dtype = at::kFloat;
    at::ScalarType reduce_dtype = at::kFloat;
    at::Device device = at::kCPU;
    bool train = true;  // gradients and optimizer state exist
    int shards = 1, shard = 0;
    std::int64_t persistence_threshold = 0;
    bool host = false;  // the shard lives, and is stepped, in host memory
  };

  // `optimizer` may be null when not training. Memory of the shard is allocated here, zero-filled;
  // but for `gradients`, where it is defined: (trainable elements / shards) f32, zero-filled, of
  // which the groups take their parts in order.
  FlatUnit(std::vector<Unit*> units, const Options& options, const Optimizer* optimizer,
           const at::Tensor& gradients);

  const std::vector<Unit*>& units() const { return units_; }
  const std::string& name() const { return name_; }  // "h.3", "h.3 to h.5"
  const std::vector<ParameterGroup>& groups() const { return groups_; }
  // What this rank's optimizer steps on: the local part of each class, where it has any.
  std::vector<FlatShard>& shards() { return shards_; }
  const std::vector<FlatShard>& shards() const { return shards_; }
  // Each parameter's part on this rank, in the order of the layout.
  void visit(const std::function<void(const LocalPart&)>& visitor) const;

  // Fills the master weights; each value depends on (seed, parameter name, index) only.
  void initialise(std::uint64_t seed);
  // f32 view of a parameter's master weight, its shape as declared; undefined if the name is not of
  // this flat unit. Error{kInternal} where this rank does not hold the whole parameter.
  at::Tensor master(const std::string& name) const;
  at::Tensor gradient(const std::string& name) const;
  // The view that forward() reads, requiring grad when training. Its memory is there between
  // gather and free.
  at::Tensor compute_view(const std::string& name) const;

  // Whether the parameters that forward reads are another memory than the master weights.
  bool gathers() const;
  // Begins to bring the computed-with parameters up to date; what is up to date already is left.
  void begin_gather(Communicator& shard_group);
  void wait_gathered();
  // Gives their memory up, where every gather brings it back.
  void free_parameters();
  // Master weights were changed.
  void parameters_changed() { fresh_ = false; }

  // Makes room for the full gradients, zero-filled, where they are not there yet. Waits for a
  // reduction under way.
  void require_gradients();
  // Begins to add the full gradients over the shard group; nothing to do without one.
  void begin_reduction(Communicator& shard_group);
  // Waits for it, where one is under way, adds what came to this shard's gradients, and gives the
  // full ones up.
  void finish_reduction();
  // At the end of a step: gradients start from zero.
  void clear_gradients();

  // Bytes by what they hold, of this rank, without what is gathered.
  std::int64_t parameter_bytes() const, gradient_bytes() const, optimizer_bytes() const;

 private:
  // Memory of one group, beside its layout.
  struct Memory {
    at::Tensor parameters, gradient;  // this rank's shard, f32; a gradient where trained
    std::vector<at::Tensor> state;
    at::Tensor full;           // what forward reads, in the computing type
    at::Tensor full_gradient;  // f32; the shard's own where there is one shard
  };
  struct Reduction {
    std::size_t group;
    at::Tensor input, output;
    std::unique_ptr<Work> work;
  };

  bool reduces() const { return options_.shards > 1 || options_.host; }
  void allocate(const Optimizer* optimizer, const at::Tensor& gradients);
  void make_shards();
  void make_views();
  at::Tensor own_part(const at::Tensor& full) const;

  std::vector<Unit*> units_;
  std::string name_;
  Options options_;
  std::vector<ParameterGroup> groups_;
  std::vector<Memory> memory_;  // by group
  std::vector<FlatShard> shards_;
  std::vector<std::unique_ptr<Work>> gathering_;
  std::vector<Reduction> reductions_;
  bool fresh_ = false;           // what is kept gathered equals the master weights
  bool first_reduction_ = true;  // of the step
};

}  // namespace tessera
