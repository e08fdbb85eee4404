#include "checkpoint/catalog.h"

#include <charconv>
#include <cstdio>
#include <map>

#include "base/error.h"
#include "checkpoint/retention.h"
#include "checkpoint/staging.h"

namespace tessera {
namespace {

constexpr std::string_view kPrefix = "step_";
constexpr std::size_t kDigits = 8;

}  // namespace

std::string checkpoint_name(std::int64_t step) {
  char name[32];
  std::snprintf(name, sizeof name, "step_%08lld", static_cast<long long>(step));
  return name;
}

std::optional<std::int64_t> checkpoint_step(std::string_view name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  name.remove_prefix(kPrefix.size());
  std::int64_t step = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), step);
  // One name a step: a longer number has no leading zero.
  const bool canonical = name.size() == kDigits || (name.size() > kDigits && name.front() != '0');
  if (error != std::errc() || end != name.data() + name.size() || step < 0 || !canonical)
    return std::nullopt;
  return step;
}

std::vector<CheckpointEntry> list_checkpoints(FileSystem& files, const Path& folder) {
  std::map<std::int64_t, Path> paths;
  for (const std::string& name : files.list(folder)) {
    if (const auto step = checkpoint_step(name)) {
      paths[*step] = folder / name;
    } else if (name.starts_with('.') && name.ends_with(kReplacedSuffix)) {
      // Stands for the visible one if a crash came while another of the same step took its name.
      const auto hidden = checkpoint_step(
          std::string_view(name).substr(1, name.size() - 1 - kReplacedSuffix.size()));
      if (hidden) paths.emplace(*hidden, folder / name);
    }
  }
  std::vector<CheckpointEntry> entries;
  for (auto& [step, path] : paths) entries.push_back({step, std::move(path)});
  return entries;
}

std::optional<CheckpointReader> find_newest_checkpoint(FileSystem& files, const Path& folder,
                                                       Log& log, std::string_view otherwise) {
  const std::vector<CheckpointEntry> entries = list_checkpoints(files, folder);
  std::string first_reason;
  for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {
    try {
      return CheckpointReader(entry->path, Verify::kFull);
    } catch (const Error& error) {
      log.warning(checkpoint_name(entry->step) + " skipped: " + error.what());
      if (first_reason.empty()) first_reason = error.reason();
    }
  }
  if (entries.empty()) return std::nullopt;
  throw Error(ErrorKind::kCorrupt,
              "none of " + std::to_string(entries.size()) +
                  " checkpoints is whole; the newest: " + first_reason,
              folder.string(), "Restore one from a copy" + std::string(otherwise) + ".");
}

std::optional<BestCheckpoint> best_checkpoint(FileSystem& files, const Path& folder, Log& log) {
  try {
    const auto record = read_best(files, folder);
    if (!record) return std::nullopt;
    for (const CheckpointEntry& entry : list_checkpoints(files, folder)) {
      if (entry.step == record->step) return BestCheckpoint{entry.step, record->loss, entry.path};
    }
  } catch (const Error& error) {
    log.warning(std::string("the record of the best checkpoint is ignored: ") + error.what());
  }
  return std::nullopt;
}

}  // namespace tessera
