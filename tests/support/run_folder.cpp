#include "support/run_folder.h"

#include <fstream>
#include <stdexcept>

namespace tessera::testing {

Path RunFolder::write(const Path& name, std::string_view text) const {
  const Path target = path() / name;
  std::filesystem::create_directories(target.parent_path());
  write_file(target, text);
  return target;
}

std::string RunFolder::read(const Path& name) const { return read_file(path() / name); }

bool RunFolder::exists(const Path& name) const { return std::filesystem::exists(path() / name); }

std::vector<std::string> RunFolder::list(const Path& name) const {
  return make_posix_file_system()->list(path() / name);
}

std::string read_file(const Path& path) { return make_posix_file_system()->read(path); }

void write_file(const Path& path, std::string_view text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(text.data(), static_cast<std::streamsize>(text.size()));
  file.close();
  if (!file) throw std::runtime_error("cannot write " + path.string());
}

void flip_bit(const Path& path, long offset) {
  std::string text = read_file(path);
  const long at = offset < 0 ? static_cast<long>(text.size()) + offset : offset;
  if (at < 0 || at >= static_cast<long>(text.size()))
    throw std::runtime_error("no byte " + std::to_string(offset) + " in " + path.string());
  text[static_cast<std::size_t>(at)] ^= 0x10;
  write_file(path, text);
}

}  // namespace tessera::testing
