// A temporary working folder for a test that runs the program, and the files that tests put there
// and find there.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/temporary_directory.h"

namespace tessera::testing {

class RunFolder {
 public:
  const Path& path() const { return directory_.path(); }
  Path operator/(const Path& name) const { return path() / name; }
  // Writes a file (its folders are made) and returns its path.
  Path write(const Path& name, std::string_view text) const;
  // The whole file; throws tessera::Error{kIo} where there is none.
  std::string read(const Path& name) const;
  bool exists(const Path& name) const;
  // Names in a folder of it, sorted; hidden ones too. Empty where there is no such folder.
  std::vector<std::string> list(const Path& name) const;

 private:
  TemporaryDirectory directory_;
};

// Reads and writes anywhere, for damage done on purpose.
std::string read_file(const Path& path);
void write_file(const Path& path, std::string_view text);
// Flips one bit of the byte at `offset` (from the end when negative).
void flip_bit(const Path& path, long offset);

}  // namespace tessera::testing
