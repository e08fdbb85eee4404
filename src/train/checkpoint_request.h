// What a checkpoint of a session consists of.
#pragma once

#include "checkpoint/writer.h"
#include "train/session.h"

namespace tessera {

CheckpointRequest make_checkpoint_request(Session& session);

}  // namespace tessera
