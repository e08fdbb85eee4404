#include "parallel/collective_communicator.h"

#include <utility>

#include "base/error.h"

namespace tessera {
namespace {

class FinishedWork final : public Work {
 public:
  void wait() override {}
};

bool can_be_reduced(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
    case at::kDouble:
    case at::kBFloat16:
    case at::kHalf:
    case at::kLong: return true;
    default: return false;
  }
}

bool reduces(Verb verb) { return verb == Verb::kAllReduce || verb == Verb::kReduceScatter; }

}  // namespace

std::string_view to_string(Verb verb) {
  switch (verb) {
    case Verb::kAllReduce: return "all_reduce";
    case Verb::kAllGather: return "all_gather";
    case Verb::kReduceScatter: return "reduce_scatter";
    case Verb::kBroadcast: return "broadcast";
    case Verb::kBarrier: return "barrier";
  }
  return "collective";
}

std::string Collective::describe() const {
  std::string text = std::string(to_string(verb)) + " " + std::to_string(number);
  if (!note.empty()) text += " (" + note + ")";
  return text;
}

std::string describe_rank(const Communicator& communicator) {
  return "rank " + std::to_string(communicator.rank()) + " of " +
         std::to_string(communicator.world_size()) + ", " + std::string(communicator.name());
}

CollectiveCommunicator::CollectiveCommunicator(int rank, int world_size, std::string name,
                                               std::optional<at::Device> device)
    : rank_(rank), world_size_(world_size), name_(std::move(name)), device_(device) {
  if (rank < 0 || rank >= world_size) {
    throw Error(ErrorKind::kInternal, "rank " + std::to_string(rank) + " is outside a group of " +
                                          std::to_string(world_size));
  }
}

std::unique_ptr<Work> CollectiveCommunicator::all_reduce(at::Tensor tensor,
                                                         ReduceOperation operation) {
  const std::int64_t count = tensor.numel();
  return submit({.verb = Verb::kAllReduce,
                 .operation = operation,
                 .output = tensor,
                 .input = tensor,
                 .count = count});
}

std::unique_ptr<Work> CollectiveCommunicator::all_gather(at::Tensor output, at::Tensor input) {
  const std::int64_t count = input.numel();
  return submit({.verb = Verb::kAllGather,
                 .output = std::move(output),
                 .input = std::move(input),
                 .count = count});
}

std::unique_ptr<Work> CollectiveCommunicator::reduce_scatter(at::Tensor output, at::Tensor input,
                                                             ReduceOperation operation) {
  const std::int64_t count = output.numel();
  return submit({.verb = Verb::kReduceScatter,
                 .operation = operation,
                 .output = std::move(output),
                 .input = std::move(input),
                 .count = count});
}

std::unique_ptr<Work> CollectiveCommunicator::broadcast(at::Tensor tensor, int root) {
  const std::int64_t count = tensor.numel();
  return submit(
      {.verb = Verb::kBroadcast, .root = root, .output = tensor, .input = tensor, .count = count});
}

std::unique_ptr<Work> CollectiveCommunicator::barrier() { return submit({.verb = Verb::kBarrier}); }

std::unique_ptr<Work> CollectiveCommunicator::submit(Collective collective) {
  collective.number = ++number_;
  collective.note = note_;
  if (collective.verb != Verb::kBarrier) {
    const std::int64_t all = collective.count * world_size_;
    check(collective, collective.output,
          collective.verb == Verb::kAllGather ? all : collective.count, "output");
    check(collective, collective.input,
          collective.verb == Verb::kReduceScatter ? all : collective.count, "input");
    if (collective.root < 0 || collective.root >= world_size_) {
      throw Error(ErrorKind::kInternal,
                  collective.describe() + " has the root " + std::to_string(collective.root),
                  describe_rank(*this));
    }
    if (collective.count == 0) return finished_work();
  }
  return start(std::move(collective));
}

void CollectiveCommunicator::check(const Collective& collective, const at::Tensor& tensor,
                                   std::int64_t count, const char* what) const {
  std::string wrong;
  if (tensor.numel() != count) {
    wrong =
        "has " + std::to_string(tensor.numel()) + " elements instead of " + std::to_string(count);
  } else if (!tensor.is_contiguous()) {
    wrong = "is not contiguous";
  } else if (device_ && tensor.device().type() != device_->type()) {
    wrong = "lies on " + tensor.device().str() + " instead of " + device_->str();
  } else if (tensor.scalar_type() != collective.output.scalar_type()) {
    wrong = std::string("is ") + c10::toString(tensor.scalar_type()) + ", the output " +
            c10::toString(collective.output.scalar_type());
  } else if (reduces(collective.verb) && !can_be_reduced(tensor.scalar_type())) {
    wrong = std::string("is ") + c10::toString(tensor.scalar_type()) + ", which has no sum here";
  }
  if (!wrong.empty()) {
    throw Error(ErrorKind::kInternal,
                "the " + std::string(what) + " of " + collective.describe() + " " + wrong,
                describe_rank(*this));
  }
}

std::unique_ptr<Work> finished_work() { return std::make_unique<FinishedWork>(); }

}  // namespace tessera
