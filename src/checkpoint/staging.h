// Makes a folder visible whole or not at all. Owns: hidden folders, flushing, the swap with an
// older folder of the same name, and clearing up after a crash. Not: content.
//
// Hidden names beside the folder, of a checkpoint for example: ".step_00000040.partial" is being
// written; ".step_00000040.replaced" is the old one while a new one takes its name;
// ".step_00000040.removing" is being deleted.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/file_system.h"
#include "base/log.h"

namespace tessera {

inline constexpr std::string_view kPartialSuffix = ".partial";
inline constexpr std::string_view kReplacedSuffix = ".replaced";
inline constexpr std::string_view kRemovingSuffix = ".removing";

// folder/step_00000040 -> folder/.step_00000040.partial and so on.
Path hidden_path(const Path& visible, std::string_view suffix);

// Makes the folder and its parents, durably.
void create_durably(FileSystem& files, const Path& folder);

// Removes what a dead writer left, and gives a checkpoint that it was about to replace its name
// back.
void clear_leftovers(FileSystem& files, const Path& folder, Log& log);

// Ends a replacement that a dead process began: `visible` gets its old content back if it has none,
// else the old content goes.
void settle_replacement(FileSystem& files, const Path& visible);

// `name` is relative to `folder`, with '/'; folders in it are made. The caller flushes and closes
// the file.
std::unique_ptr<WritableFile> create_inside(FileSystem& files, const Path& folder,
                                            const std::string& name);

// A folder on its way to its name. Destroyed without commit(): the hidden folder is removed.
class StagedFolder {
 public:
  // Makes the hidden folder anew; that of `visible` must be there.
  StagedFolder(FileSystem& files, Path visible);
  ~StagedFolder();
  StagedFolder(const StagedFolder&) = delete;
  StagedFolder& operator=(const StagedFolder&) = delete;

  const Path& hidden() const { return partial_; }  // where its files are until commit()
  std::unique_ptr<WritableFile> create(const std::string& name);
  void write(const std::string& name, std::string_view content);  // flushed and closed

  // Flushes all folders and gives the folder its name. After an error from here the older folder of
  // this name is still there, or the new one is.
  Path commit();

 private:
  void sync_folders(const Path& folder);

  FileSystem& files_;
  const Path visible_, partial_;
  bool committed_ = false;
};

}  // namespace tessera
