#include "parallel/transports.h"

#include "base/error.h"
#include "base/registry.h"
#include "parallel/transport_factories.h"

namespace tessera {
namespace {

std::unique_ptr<Communicator> make_auto(const GroupPlace& place) {
  if (place.world_size == 1) return make_single_process_communicator();
  if (place.device.type() != at::kCPU) return make_nccl_communicator(place);
  if (place.local_world_size == place.world_size) return make_shm_communicator(place);
  return make_gloo_communicator(place);
}

struct Transport {
  std::string_view name;
  std::unique_ptr<Communicator> (*make)(const GroupPlace& place);
};

constexpr Transport kTransports[] = {
    {"auto", make_auto},
    {"gloo", make_gloo_communicator},
    {"shm", make_shm_communicator},
    {"mpi", make_mpi_communicator},
    {"nccl", make_nccl_communicator},
};

}  // namespace

std::string GroupPlace::describe(std::string_view transport) const {
  const std::string of = " of " + std::to_string(world_size);
  const std::string own = std::to_string(rank);
  return "rank " +
         (world_ranks.empty()
              ? own + of
              : std::to_string(world_rank(rank)) + " (" + own + of + " of its group)") +
         ", " + std::string(transport);
}

std::unique_ptr<Communicator> make_communicator(std::string_view name, const GroupPlace& place) {
  const Transport& transport = find_in_registry(kTransports, name, "parallel.transport");
  if (place.device.type() != at::kCPU && name != "nccl" && name != "auto") {
    throw Error(
        ErrorKind::kConfig,
        "parallel.transport=" + std::string(name) + " cannot move tensors of " + place.device.str(),
        {}, "Set parallel.transport to nccl, or leave it at auto.");
  }
  return transport.make(place);
}

}  // namespace tessera
