// How the ranks that write a checkpoint talk: through the job's store, beside the collectives, so
// that writing threads need none. Owns: the keys. Not: what they say (checkpoint/save_meeting.h).
#pragma once

#include <memory>

#include "checkpoint/save_group.h"
#include "parallel/rank_watch.h"

namespace tessera {

// `rank` of the ranks 0 to writers - 1 of the run. The watch must outlive the group. At most one
// checkpoint writer of an attempt of the job may use such a group, for it counts its saves in the
// keys.
std::unique_ptr<SaveGroup> make_save_group(RankWatch& watch, int rank, int writers);

}  // namespace tessera
