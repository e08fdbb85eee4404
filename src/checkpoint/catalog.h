// Finds checkpoints in DIR/checkpoints. Owns: the names of folders, the record of the best one.
// Only reads.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file_system.h"
#include "base/log.h"
#include "checkpoint/reader.h"

namespace tessera {

std::string checkpoint_name(std::int64_t step);  // 40 -> "step_00000040"
std::optional<std::int64_t> checkpoint_step(
    std::string_view name);  // the reverse; nothing for other names

struct CheckpointEntry {
  std::int64_t step = 0;
  Path path;
};

// All visible checkpoints of the folder, by ascending step; their content is not checked. Empty
// without a folder.
std::vector<CheckpointEntry> list_checkpoints(FileSystem& files, const Path& folder);

// The newest checkpoint whose every byte is right. Says for each newer one why it is passed over:
// "step_00000040 skipped: model.safetensors: checksum differs at …". Nothing: there is no
// checkpoint at all. Error{kCorrupt}: there are some, but none is whole; it offers to restore one,
// and what the caller has `otherwise`, such as ", or …".
std::optional<CheckpointReader> find_newest_checkpoint(FileSystem& files, const Path& folder,
                                                       Log& log, std::string_view otherwise = {});

struct BestCheckpoint {
  std::int64_t step = 0;
  double loss = 0;
  Path path;
};

// The recorded best checkpoint. Nothing where none is recorded or its folder is gone; a damaged
// record is said in a warning and counts as none.
std::optional<BestCheckpoint> best_checkpoint(FileSystem& files, const Path& folder, Log& log);

}  // namespace tessera
