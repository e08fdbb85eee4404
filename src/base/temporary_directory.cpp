#include "base/temporary_directory.h"

#include <stdlib.h>

#include <cerrno>
#include <cstring>
#include <system_error>

#include "base/error.h"

namespace tessera {

TemporaryDirectory::TemporaryDirectory() {
  std::string name = (std::filesystem::temp_directory_path() / "tessera.XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr) {
    throw Error(ErrorKind::kIo,
                std::string("cannot create a temporary folder: ") + std::strerror(errno), name);
  }
  path_ = name;
}

TemporaryDirectory::~TemporaryDirectory() {
  std::error_code ignored;  // nothing can be done about it here
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace tessera
