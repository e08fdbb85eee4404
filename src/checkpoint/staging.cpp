#include "checkpoint/staging.h"

#include <vector>

#include "base/error.h"
#include "checkpoint/catalog.h"
#include "checkpoint/manifest.h"

namespace tessera {
namespace {

// Step of a hidden folder with this suffix.
std::optional<std::int64_t> hidden_step(std::string_view name, std::string_view suffix) {
  if (!name.starts_with('.') || !name.ends_with(suffix)) return std::nullopt;
  return checkpoint_step(name.substr(1, name.size() - 1 - suffix.size()));
}

void try_remove(FileSystem& files, const Path& path) {
  try {
    files.remove_all(path);
  } catch (const Error&) {
    // It is hidden and harmless; the next start tries again.
  }
}

}  // namespace

Path hidden_path(const Path& visible, std::string_view suffix) {
  return visible.parent_path() / ("." + visible.filename().string() + std::string(suffix));
}

void create_durably(FileSystem& files, const Path& folder) {
  std::vector<Path> parents;
  Path path = folder.has_filename() ? folder : folder.parent_path();
  while (!path.empty() && !files.is_directory(path)) {
    path = path.has_parent_path() ? path.parent_path() : Path(".");
    parents.push_back(path);
  }
  files.create_directories(folder);
  for (const Path& parent : parents) files.sync_directory(parent);
}

void clear_leftovers(FileSystem& files, const Path& folder, Log& log) {
  // The dead process may not have flushed its renames: a visible name could come back over what is
  // deleted here.
  files.sync_directory(folder);
  for (const std::string& name : files.list(folder)) {
    if (hidden_step(name, kPartialSuffix) || hidden_step(name, kRemovingSuffix)) {
      log.detail("removing " + (folder / name).string() + ", which an earlier process left");
      files.remove_all(folder / name);
    } else if (name.starts_with("best.json.tmp.")) {
      files.remove_all(folder / name);
    } else if (const auto step = hidden_step(name, kReplacedSuffix)) {
      settle_replacement(files, folder / checkpoint_name(*step));
    }
  }
}

void settle_replacement(FileSystem& files, const Path& visible) {
  const Path replaced = hidden_path(visible, kReplacedSuffix);
  if (files.exists(visible)) {
    files.remove_all(replaced);
  } else if (files.exists(replaced)) {
    files.rename(replaced, visible);
    files.sync_directory(visible.parent_path());
  }
}

std::unique_ptr<WritableFile> create_inside(FileSystem& files, const Path& folder,
                                            const std::string& name) {
  if (!is_safe_file_name(name)) {
    throw Error(ErrorKind::kInternal, "a checkpoint's file may not be named '" + name + "'");
  }
  const Path path = folder / name;
  if (path.parent_path() != folder) files.create_directories(path.parent_path());
  return files.create(path);
}

StagedFolder::StagedFolder(FileSystem& files, Path visible)
    : files_(files), visible_(std::move(visible)), partial_(hidden_path(visible_, kPartialSuffix)) {
  files_.remove_all(partial_);
  files_.create_directories(partial_);
}

StagedFolder::~StagedFolder() {
  if (!committed_) try_remove(files_, partial_);
}

std::unique_ptr<WritableFile> StagedFolder::create(const std::string& name) {
  return create_inside(files_, partial_, name);
}

void StagedFolder::write(const std::string& name, std::string_view content) {
  const auto file = create(name);
  file->write(content);
  file->sync();
  file->close();
}

void StagedFolder::sync_folders(const Path& folder) {
  for (const std::string& name : files_.list(folder)) {
    if (files_.is_directory(folder / name)) sync_folders(folder / name);
  }
  files_.sync_directory(folder);
}

Path StagedFolder::commit() {
  sync_folders(partial_);
  const Path replaced = hidden_path(visible_, kReplacedSuffix);
  const bool replaces = files_.exists(visible_);
  if (replaces) {
    files_.remove_all(replaced);
    files_.rename(visible_, replaced);
  }
  try {
    files_.rename(partial_, visible_);
  } catch (...) {
    try {
      if (replaces) files_.rename(replaced, visible_);
    } catch (const Error&) {
      // Readers know the hidden name, and the next start gives the visible one back.
    }
    throw;
  }
  committed_ = true;
  files_.sync_directory(visible_.parent_path());
  if (replaces) try_remove(files_, replaced);
  return visible_;
}

}  // namespace tessera
