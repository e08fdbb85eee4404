// One maker a transport, for the table in transports.cpp and for tests. A maker throws as
// make_communicator does.
#pragma once

#include <memory>

#include "parallel/transports.h"

namespace tessera {

std::unique_ptr<Communicator> make_gloo_communicator(const GroupPlace& place);
std::unique_ptr<Communicator> make_shm_communicator(const GroupPlace& place);
std::unique_ptr<Communicator> make_mpi_communicator(const GroupPlace& place);
std::unique_ptr<Communicator> make_nccl_communicator(const GroupPlace& place);

}  // namespace tessera
