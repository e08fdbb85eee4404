#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/hash.h"
#include "parallel/collective_communicator.h"
#include "parallel/mpi_module.h"
#include "parallel/ordered_worker.h"
#include "parallel/reduce_ranks.h"
#include "parallel/transport_factories.h"
#include "store/store_client.h"

namespace tessera {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t kChunkBytes = 16 << 20;  // bounds what is packed, and keeps counts in an int

std::string where(const GroupPlace& place) { return place.describe("mpi"); }

bool is_half(at::ScalarType type) { return type == at::kBFloat16 || type == at::kHalf; }

// The module lies beside the library or program that this code is part of, or one folder up
// (tests).
const TesseraMpi& load_module(const GroupPlace& place) {
  Dl_info here = {};
  dladdr(reinterpret_cast<const void*>(&load_module), &here);
  const std::filesystem::path folder = std::filesystem::absolute(here.dli_fname).parent_path();
  std::string reasons;
  for (const auto& candidate :
       {folder / "libtessera_mpi.so", folder.parent_path() / "libtessera_mpi.so"}) {
    if (!std::filesystem::exists(candidate)) continue;
    void* library = dlopen(candidate.c_str(), RTLD_NOW | RTLD_LOCAL);  // to the process's end
    if (library != nullptr) {
      if (void* entry = dlsym(library, "tessera_mpi")) {
        return *reinterpret_cast<TesseraMpiEntry>(entry)();
      }
    }
    reasons = dlerror();
  }
  throw Error(
      ErrorKind::kConfig,
      reasons.empty()
          ? "this build has no MPI: libtessera_mpi.so is not beside " + std::string(here.dli_fname)
          : "MPI cannot be loaded: " + reasons,
      where(place),
      "Install libopenmpi-dev and openmpi-bin and build again, or set parallel.transport=gloo.");
}

// MPI would start alone without a launcher, and know of no other rank.
bool started_by_mpi_launcher() {
  return std::ranges::any_of(std::vector{"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK"},
                             [](const char* name) { return std::getenv(name) != nullptr; });
}

class MpiCommunicator final : public CollectiveCommunicator {
 public:
  MpiCommunicator(const GroupPlace& place, const TesseraMpi& mpi, TesseraMpiGroup* group)
      : CollectiveCommunicator(place.rank, place.world_size, "mpi", at::Device(at::kCPU)),
        timeout_(place.timeout),
        mpi_(&mpi),
        group_(group) {}

  ~MpiCommunicator() override {
    closing_ = true;
    worker_.reset();
    if (!failed_) mpi_->close(group_);  // else MPI may still use it
  }

 private:
  std::unique_ptr<Work> start(Collective collective) override {
    return worker_->run([this, collective = std::move(collective)] { execute(collective); });
  }

  void execute(const Collective& collective) {
    const Clock::time_point deadline = Clock::now() + timeout_;
    try {
      switch (collective.verb) {
        case Verb::kAllReduce: return all_reduce_now(collective, deadline);
        case Verb::kReduceScatter: return reduce_scatter_now(collective, deadline);
        case Verb::kAllGather: return all_gather_now(collective, deadline);
        case Verb::kBroadcast: return broadcast_now(collective, deadline);
        case Verb::kBarrier: return finish({.verb = kMpiBarrier}, collective, deadline);
      }
    } catch (...) {
      // MPI may still write into the buffers of what it has not finished: they stay for good.
      new Collective(collective);
      new std::vector<std::byte>(std::exchange(scratch_, {}));
      failed_ = true;
      throw;
    }
  }

  void finish(const TesseraMpiCall& call, const Collective& collective,
              Clock::time_point deadline) {
    TesseraMpiRequest* request = nullptr;
    check(mpi_->begin(group_, &call, &request), collective);
    bool done = false;
    // MPI goes on when it is asked only. Asking without a pause would take a processor from the
    // computation beside; a pause at once would make small messages slow.
    for (int polls = 0; !done; ++polls) {
      check(mpi_->test(request, &done), collective);
      if (done) return;
      if (closing_ || Clock::now() > deadline) {
        throw Error(ErrorKind::kComm,
                    collective.describe() + " failed: " +
                        (closing_ ? "this rank is leaving"
                                  : "not all ranks arrived within " +
                                        std::to_string(timeout_.count()) + " ms"),
                    describe_rank(*this), "Look at the ranks' own logs.");
      }
      if (polls < kBusyPolls) {
        std::this_thread::yield();
      } else {
        std::this_thread::sleep_for(std::chrono::microseconds(20));
      }
    }
  }

  void check(const char* failure, const Collective& collective) const {
    if (failure == nullptr) return;
    throw Error(ErrorKind::kComm, collective.describe() + " failed: " + failure,
                describe_rank(*this), "Look at the ranks' own logs, and at mpirun's.");
  }

  static TesseraMpiType type_of(at::ScalarType type) {
    switch (type) {
      case at::kDouble: return kMpiDouble;
      case at::kLong: return kMpiInt64;
      default: return kMpiFloat;  // bf16 and f16 are added in f32
    }
  }

  template <class Body>
  static void for_chunks(std::int64_t count, std::int64_t chunk, const Body& body) {
    for (std::int64_t begin = 0; begin < count; begin += chunk) {
      body(begin, std::min(chunk, count - begin));
    }
  }

  void all_reduce_now(const Collective& of, Clock::time_point deadline) {
    const at::ScalarType type = of.output.scalar_type();
    const auto item = static_cast<std::int64_t>(of.output.element_size());
    auto* data = static_cast<std::byte*>(of.output.data_ptr());
    for_chunks(of.count, kChunkBytes / item, [&](std::int64_t begin, std::int64_t count) {
      std::byte* chunk = data + begin * item;
      void* values = chunk;
      if (is_half(type)) {
        values = scratch(count * static_cast<std::int64_t>(sizeof(float)));
        widen(static_cast<float*>(values), chunk, count, type);
      }
      finish({.verb = kMpiAllReduce,
              .type = type_of(type),
              .max = of.operation == ReduceOperation::kMax,
              .output = values,
              .count = static_cast<std::int32_t>(count)},
             of, deadline);
      if (is_half(type)) narrow(chunk, static_cast<const float*>(values), count, type);
    });
  }

  // Chunks of all parts are packed side by side, as MPI wants them.
  void reduce_scatter_now(const Collective& of, Clock::time_point deadline) {
    const at::ScalarType type = of.output.scalar_type();
    const auto item = static_cast<std::int64_t>(of.output.element_size());
    const std::int64_t wide = is_half(type) ? static_cast<std::int64_t>(sizeof(float)) : item;
    const auto* input = static_cast<const std::byte*>(of.input.const_data_ptr());
    auto* output = static_cast<std::byte*>(of.output.data_ptr());
    const std::int64_t limit = std::max<std::int64_t>(1, kChunkBytes / wide / world_size());
    for_chunks(of.count, limit, [&](std::int64_t begin, std::int64_t count) {
      std::byte* packed = scratch(count * wide * (world_size() + 1));
      std::byte* sums = packed + count * wide * world_size();
      for (int rank = 0; rank < world_size(); ++rank) {
        const std::byte* part = input + (rank * of.count + begin) * item;
        std::byte* to = packed + rank * count * wide;
        if (is_half(type)) {
          widen(reinterpret_cast<float*>(to), part, count, type);
        } else {
          std::memcpy(to, part, static_cast<std::size_t>(count * item));
        }
      }
      finish({.verb = kMpiReduceScatter,
              .type = type_of(type),
              .max = of.operation == ReduceOperation::kMax,
              .input = packed,
              .output = sums,
              .count = static_cast<std::int32_t>(count)},
             of, deadline);
      std::byte* to = output + begin * item;
      if (is_half(type)) {
        narrow(to, reinterpret_cast<const float*>(sums), count, type);
      } else {
        std::memcpy(to, sums, static_cast<std::size_t>(count * item));
      }
    });
  }

  void all_gather_now(const Collective& of, Clock::time_point deadline) {
    const std::int64_t bytes = of.count * static_cast<std::int64_t>(of.output.element_size());
    const auto* input = static_cast<const std::byte*>(of.input.const_data_ptr());
    auto* output = static_cast<std::byte*>(of.output.data_ptr());
    for_chunks(bytes, kChunkBytes, [&](std::int64_t begin, std::int64_t count) {
      const std::byte* part = input + begin;
      if (part == output + rank() * bytes + begin) {  // MPI forbids that they overlap
        std::byte* copy = scratch(count);
        std::memcpy(copy, part, static_cast<std::size_t>(count));
        part = copy;
      }
      finish({.verb = kMpiAllGather,
              .type = kMpiBytes,
              .input = part,
              .output = output + begin,
              .count = static_cast<std::int32_t>(count),
              .stride = bytes},
             of, deadline);
    });
  }

  void broadcast_now(const Collective& of, Clock::time_point deadline) {
    const std::int64_t bytes = of.count * static_cast<std::int64_t>(of.output.element_size());
    auto* data = static_cast<std::byte*>(of.output.data_ptr());
    for_chunks(bytes, kChunkBytes, [&](std::int64_t begin, std::int64_t count) {
      finish({.verb = kMpiBroadcast,
              .type = kMpiBytes,
              .root = of.root,
              .output = data + begin,
              .count = static_cast<std::int32_t>(count)},
             of, deadline);
    });
  }

  std::byte* scratch(std::int64_t bytes) {
    if (scratch_.size() < static_cast<std::size_t>(bytes)) {
      scratch_.resize(static_cast<std::size_t>(bytes));
    }
    return scratch_.data();
  }

  static constexpr int kBusyPolls = 200;

  std::chrono::milliseconds timeout_;
  const TesseraMpi* mpi_;
  TesseraMpiGroup* group_;
  std::vector<std::byte> scratch_;  // of the worker's thread
  std::atomic<bool> closing_ = false, failed_ = false;
  std::unique_ptr<OrderedWorker> worker_ = std::make_unique<OrderedWorker>();
};

// MPI's own numbers of the group's ranks, in the group's order: each rank tells its own by the
// store.
std::vector<int> world_ranks(const GroupPlace& place, int own) {
  StoreClient store({.host = place.store_host,
                     .port = place.store_port,
                     .prefix = place.key_prefix,
                     .connect_timeout = place.timeout});
  store.set("mpi/" + std::to_string(place.rank), std::to_string(own));
  std::vector<int> ranks;
  for (int rank = 0; rank < place.world_size; ++rank) {
    const auto number = store.wait("mpi/" + std::to_string(rank), place.timeout);
    if (!number) {
      throw Error(ErrorKind::kComm,
                  "rank " + std::to_string(place.world_rank(rank)) + " did not come", where(place),
                  "Look at its own log.");
    }
    ranks.push_back(std::stoi(*number));
  }
  return ranks;
}

}  // namespace

std::unique_ptr<Communicator> make_mpi_communicator(const GroupPlace& place) {
  const TesseraMpi& mpi = load_module(place);
  if (!started_by_mpi_launcher()) {
    throw Error(ErrorKind::kConfig,
                "parallel.transport=mpi, but mpirun has not started this process", where(place),
                "Start it as 'mpirun -n N tessera train …', or choose another transport.");
  }
  const auto check = [&](const char* failure) {
    if (failure != nullptr) {
      throw Error(ErrorKind::kComm, std::string("MPI cannot connect the ranks: ") + failure,
                  where(place), "Look at mpirun's own messages.");
    }
  };
  int world_rank = 0, world_size = 1;
  check(mpi.start(&world_rank, &world_size));
  if (world_size < place.world_size) {
    throw Error(ErrorKind::kConfig,
                "MPI sees " + std::to_string(world_size) + " ranks, the group has " +
                    std::to_string(place.world_size),
                where(place),
                "The mpirun that starts the ranks must be of the MPI that is installed.");
  }
  const std::vector<int> ranks = world_ranks(place, world_rank);
  // Groups that share ranks are made one after the other; the tag keeps strangers apart.
  const int tag = static_cast<int>(hash64(place.key_prefix) & 0x7fff);
  TesseraMpiGroup* group = nullptr;
  check(mpi.open(ranks.data(), place.world_size, tag, &group));
  return std::make_unique<MpiCommunicator>(place, mpi, group);
}

}  // namespace tessera
