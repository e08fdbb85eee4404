#include "cli/program.h"

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <nlohmann/json.hpp>
#include <string>

namespace tessera::cli {

Path program_path() {
  std::error_code error;
  const Path path = std::filesystem::read_symlink("/proc/self/exe", error);
  return error ? Path("tessera") : path;
}

Path shipped_config_dir() {
  std::error_code error;
  const Path installed =
      (program_path().parent_path().parent_path() / "share/tessera/configs").lexically_normal();
  if (std::filesystem::is_directory(installed, error)) return installed;
  const Path sources = TESSERA_CONFIG_SOURCES;
  return std::filesystem::is_directory(sources, error) ? sources : Path();
}

namespace {

// The contract of torch's launchers; a file that cannot be written is no error of its own.
void write_error_file(const std::string& message) {
  const char* path = std::getenv("TORCHELASTIC_ERROR_FILE");
  if (path == nullptr || *path == '\0') return;
  const nlohmann::json content = {
      {"message",
       {{"message", message}, {"extraInfo", {{"timestamp", std::to_string(std::time(nullptr))}}}}}};
  if (std::FILE* file = std::fopen(path, "w")) {
    const std::string text =
        content.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
    std::fwrite(text.data(), 1, text.size(), file);
    std::fclose(file);
  }
}

}  // namespace

void print_error(const std::string& message) {
  const std::size_t end = message.rfind('\n');
  const std::string before = end == std::string::npos ? "" : message.substr(0, end + 1);
  const std::string last = end == std::string::npos ? message : message.substr(end + 1);
  std::fflush(stdout);
  const std::string text = before + "error: " + last + "\n";
  std::fwrite(text.data(), 1, text.size(), stderr);
  write_error_file(message);
}

std::string_view version() { return TESSERA_VERSION; }

}  // namespace tessera::cli
