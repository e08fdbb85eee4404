// Where this process stands among the ranks, with the store's host as this host must name it. Owns:
// that correction. Not: the launchers' variables (base/rank_place.h).
#pragma once

#include "base/rank_place.h"

namespace tessera::cli {

// Debian maps a host's own name to 127.0.1.1: on the host of the store, its name would stand for an
// address that no other host reaches, for listening as for being found. There it is replaced by the
// host's address; everywhere else it stays. Errors as rank_place().
RankPlace own_place();

}  // namespace tessera::cli
