// Ranks as threads of one process, for tests and for trials without processes. Owns: their groups
// and their failures.
#pragma once

#include <functional>

#include "parallel/mesh_groups.h"

namespace tessera {

// Runs `body` as each rank of the mesh, and returns when all are done. A rank's exception is thrown
// again here; the other ranks' operations fail meanwhile.
void run_thread_ranks(const Mesh& mesh, const std::function<void(const MeshGroups&)>& body);

}  // namespace tessera
