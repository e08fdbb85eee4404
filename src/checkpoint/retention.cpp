#include "checkpoint/retention.h"

#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "checkpoint/catalog.h"
#include "checkpoint/sealed_text.h"
#include "checkpoint/staging.h"

namespace tessera {

void record_best(FileSystem& files, const Path& folder, std::int64_t step, double loss) {
  if (!std::isfinite(loss))
    throw Error(ErrorKind::kInternal, "the best loss is not a finite number");
  char digits[64];
  const auto end = std::to_chars(digits, digits + sizeof digits, loss).ptr;
  const std::string json =
      "{\"step\": " + std::to_string(step) + ", \"loss\": " + std::string(digits, end) + "}";
  write_file_atomically(files, folder / kBestName, seal_json(json));
}

std::optional<BestRecord> read_best(FileSystem& files, const Path& folder) {
  const Path path = folder / kBestName;
  if (!files.exists(path)) return std::nullopt;
  const std::string text = files.read(path);
  const auto json = nlohmann::json::parse(check_seal(text, path), nullptr, false);
  if (!json.is_object() || !json.contains("step") || !json["step"].is_number_unsigned() ||
      !json.contains("loss") || !json["loss"].is_number()) {
    throw Error(ErrorKind::kCorrupt, std::string(kBestName) + ": it has no step and loss",
                path.string());
  }
  return BestRecord{json["step"].get<std::int64_t>(), json["loss"].get<double>()};
}

std::vector<Path> hide_old_checkpoints(FileSystem& files, const Path& folder, std::int64_t newest,
                                       const RetentionPolicy& policy, Log& log) {
  std::vector<Path> hidden;
  if (policy.keep <= 0) return hidden;
  std::set<std::int64_t> stay = policy.protect;
  try {
    if (const auto best = read_best(files, folder)) stay.insert(best->step);
  } catch (const Error& error) {
    log.warning(std::string("no old checkpoint is removed, for the best one is not known: ") +
                error.what());
    return hidden;
  }
  std::vector<CheckpointEntry> entries = list_checkpoints(files, folder);
  std::erase_if(entries, [&](const CheckpointEntry& entry) { return entry.step > newest; });
  const std::size_t keep = static_cast<std::size_t>(policy.keep);
  for (std::size_t i = 0; i + keep < entries.size(); ++i) {
    if (stay.contains(entries[i].step)) continue;
    // Its path may be a hidden one, of a replacement that was left undone.
    const Path target = hidden_path(folder / checkpoint_name(entries[i].step), kRemovingSuffix);
    files.remove_all(target);
    files.rename(entries[i].path, target);
    hidden.push_back(target);
  }
  // Or a crash could show the old name again, over a folder that is deleted by half.
  if (!hidden.empty()) files.sync_directory(folder);
  return hidden;
}

void remove_hidden(FileSystem& files, const std::vector<Path>& hidden, Log& log) {
  for (const Path& path : hidden) {
    try {
      files.remove_all(path);
    } catch (const Error& error) {
      log.warning(std::string("an old checkpoint stays on disk: ") + error.what());
    }
  }
}

}  // namespace tessera
