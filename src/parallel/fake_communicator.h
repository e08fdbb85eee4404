// One rank of a large world, alone. Owns: results that have the right sizes. For trials of memory
// and time, and for plans of worlds that are not there: values are not those of a real run.
#pragma once

#include <memory>

#include "parallel/communicator.h"

namespace tessera {

// Every operation is done at once: all_gather puts the own part everywhere, a reduction leaves this
// rank's contribution, a broadcast what is there.
std::unique_ptr<Communicator> make_fake_communicator(int rank, int world_size);

}  // namespace tessera
