// This host's name, for messages and records.
#pragma once

#include <string>

namespace tessera {

// As the system calls it; "localhost" where it tells none.
std::string host_name();

}  // namespace tessera
