#include "base/new_folder.h"

#include <system_error>

namespace tessera {

NewFolder::NewFolder(FileSystem& files, const Path& path) {
  Path at = path.has_filename() ? path : path.parent_path();
  for (; !at.empty() && !files.exists(at); at = at.parent_path()) made_.push_back(at);
  files.create_directories(path);
}

NewFolder::~NewFolder() {
  std::error_code ignored;
  for (const Path& path : made_) {
    std::filesystem::remove(path, ignored);  // fails for a folder that is not empty
  }
}

}  // namespace tessera
