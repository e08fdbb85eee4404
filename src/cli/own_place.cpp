#include "cli/own_place.h"

#include "base/error.h"
#include "launcher/host_addresses.h"

namespace tessera::cli {

RankPlace own_place() {
  RankPlace place = rank_place(process_environment());
  if (place.alone()) return place;
  try {
    place.store_host = listening_address(place.store_host);
  } catch (const Error&) {
    // Another host, or a name that cannot be resolved now: who connects tries it again and says so.
  }
  return place;
}

}  // namespace tessera::cli
