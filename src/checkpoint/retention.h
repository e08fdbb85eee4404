// Which checkpoints stay. Owns: best.json and the removal of old checkpoints. Not: when it is time.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string_view>
#include <vector>

#include "base/file_system.h"
#include "base/log.h"

namespace tessera {

inline constexpr std::string_view kBestName = "best.json";

// Replaces best.json, atomically. The step's checkpoint must be durable already. Error{kIo}.
void record_best(FileSystem& files, const Path& folder, std::int64_t step, double loss);

struct BestRecord {
  std::int64_t step = 0;
  double loss = 0;
};

// Nothing where none is recorded. Error{kCorrupt, kIo} on a damaged or unreadable record.
std::optional<BestRecord> read_best(FileSystem& files, const Path& folder);

struct RetentionPolicy {
  int keep = 0;  // 0: all
  std::set<std::int64_t> protect;
};

// Hides every checkpoint older than the newest `keep` up to `newest`, which has just become
// durable, but neither the best nor a protected one; nothing at all while the record of the best
// cannot be read. Checkpoints of later steps (from before a return to an earlier one) are left
// alone and do not count. The names are durable on return. Returns the hidden folders, for
// remove_hidden().
std::vector<Path> hide_old_checkpoints(FileSystem& files, const Path& folder, std::int64_t newest,
                                       const RetentionPolicy& policy, Log& log);

// Deletes them. A failure is a warning: the next start tries again.
void remove_hidden(FileSystem& files, const std::vector<Path>& hidden, Log& log);

}  // namespace tessera
