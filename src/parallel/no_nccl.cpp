// In place of nccl_communicator.cpp where torch is a build for processors only.
#include <string>

#include "base/error.h"
#include "parallel/transport_factories.h"

namespace tessera {

std::unique_ptr<Communicator> make_nccl_communicator(const GroupPlace& place) {
  throw Error(ErrorKind::kConfig, "parallel.transport=nccl, but this build's torch has no NCCL",
              place.describe("nccl"),
              "Build with the preset for GPUs (docs/install.md), or choose another transport.");
}

}  // namespace tessera
