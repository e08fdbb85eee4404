// The folder of a run: names in it, moving an old run aside, the record of what was run.
#pragma once

#include <memory>
#include <string>

#include "base/file_system.h"
#include "base/log.h"

namespace tessera {

class RunFolder {
 public:
  RunFolder(FileSystem& files, Path dir) : files_(&files), dir_(std::move(dir)) {}

  const Path& dir() const { return dir_; }
  Path checkpoints() const { return dir_ / "checkpoints"; }
  Path metrics() const { return dir_ / "metrics.jsonl"; }

  // Renames the folder, if there is a run in it, to DIR.old-1, DIR.old-2, …: nothing is
  // overwritten. Whether it did. Error{kIo}.
  bool move_aside(Log& log) const;
  // Creates it and proves that files can be written there, before any work is done. Error{kIo}.
  void create() const;
  // Keeps every other process out of the folder while the object lives. Error{kIo} where one is in
  // it.
  std::unique_ptr<FileLock> lock() const;
  // config.yaml and environment.json (versions, machine, git revision of the working folder,
  // command).
  void record(const std::string& config_yaml, const std::string& environment_json) const;

 private:
  FileSystem* files_;
  Path dir_;
};

// What a run's environment.json says.
std::string environment_json(const std::string& command_line, const std::string& torch_version,
                             const std::string& device);

}  // namespace tessera
