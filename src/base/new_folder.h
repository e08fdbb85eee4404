// A folder for results that may fail to come. Owns: taking it away again.
#pragma once

#include <vector>

#include "base/file_system.h"

namespace tessera {

// Makes a folder, and where need be those above it, for what is about to be written there. At the
// object's end those that it made and that are still empty go away again. Error{kIo}.
class NewFolder {
 public:
  NewFolder(FileSystem& files, const Path& path);
  ~NewFolder();
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;

 private:
  std::vector<Path> made_;  // the deepest first
};

}  // namespace tessera
