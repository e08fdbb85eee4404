// A fresh folder that is removed with its object.
#pragma once

#include "base/file_system.h"

namespace tessera {

class TemporaryDirectory {
 public:
  TemporaryDirectory();  // under $TMPDIR or /tmp; Error{kIo}
  ~TemporaryDirectory();
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  const Path& path() const { return path_; }

 private:
  Path path_;
};

}  // namespace tessera
