// Finding config files by name.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <system_error>

#include "base/error.h"
#include "base/registry.h"
#include "config/load.h"

namespace tessera {
namespace {

bool is_file(const Path& path) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  // A pipe (`<(…)`) is a file to read as well.
  return std::filesystem::exists(status) && !std::filesystem::is_directory(status);
}

bool is_folder(const Path& path) {
  std::error_code error;
  return std::filesystem::is_directory(path, error);
}

std::string summary_of(const Path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  if (!line.starts_with("#")) return {};
  return line.substr(std::min(line.size(), line.find_first_not_of("# ")));
}

void list_into(const Path& folder, const std::string& prefix, std::vector<ShippedConfig>& result) {
  std::error_code error;
  std::vector<ShippedConfig> files;
  std::vector<Path> folders;
  for (std::filesystem::directory_iterator it(folder, error), end; !error && it != end;
       it.increment(error)) {
    const Path& path = it->path();
    if (is_folder(path) && prefix.empty()) folders.push_back(path);
    if (path.extension() != ".yaml" || !is_file(path)) continue;
    files.push_back({prefix + path.stem().string(), path, summary_of(path)});
  }
  const auto by_name = [](const auto& a, const auto& b) { return a.name < b.name; };
  std::sort(files.begin(), files.end(), by_name);
  result.insert(result.end(), files.begin(), files.end());
  std::sort(folders.begin(), folders.end());
  for (const Path& path : folders) list_into(path, path.filename().string() + "/", result);
}

std::string suggestion(const std::string& name, const std::vector<Path>& folders) {
  std::vector<std::string> names;
  const bool in_group = name.find('/') != name.npos;
  for (const Path& folder : folders) {
    for (const ShippedConfig& config : list_configs(folder)) {
      if ((config.name.find('/') != std::string::npos) == in_group) names.push_back(config.name);
    }
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  const std::string_view wanted =
      name.ends_with(".yaml") ? std::string_view(name).substr(0, name.size() - 5) : name;
  const std::vector<std::string_view> candidates(names.begin(), names.end());
  const std::string_view guess = nearest(wanted, candidates);
  if (!guess.empty()) return "Did you mean '" + std::string(guess) + "'?";
  return in_group ? "Give the path of a file." : "`tessera config ls` names the shipped ones.";
}

}  // namespace

std::vector<ShippedConfig> list_configs(const Path& folder) {
  std::vector<ShippedConfig> result;
  if (!folder.empty()) list_into(folder, "", result);
  return result;
}

Path find_config(const std::string& name, const std::vector<Path>& folders) {
  if (name.empty()) throw Error(ErrorKind::kConfig, "the name of the config is empty");
  if (is_file(name)) return name;
  const Path path(name);
  const bool bare = path.is_relative() && !name.starts_with("./") && !name.starts_with("../");
  for (const Path& folder : folders) {
    if (!bare || folder.empty()) continue;
    if (is_file(folder / path)) return folder / path;
    if (is_file(folder / (name + ".yaml"))) return folder / (name + ".yaml");
  }
  if (is_folder(path)) {
    throw Error(ErrorKind::kConfig, "'" + name + "' is a folder, not a config file", {},
                is_file(path / "config.yaml") ? "Did you mean '" + name + "/config.yaml'?"
                                              : "Give the path of a YAML file.");
  }
  // "./x" and the like: what the system says of it.
  std::error_code error;
  const bool there = std::filesystem::exists(path, error);
  if (!there && error && error != std::errc::no_such_file_or_directory) {
    throw Error(ErrorKind::kConfig, "no config '" + name + "': " + error.message());
  }
  throw Error(
      ErrorKind::kConfig,
      "no config '" + name + "': there is neither such a file nor a shipped config of that name",
      {}, suggestion(name, folders));
}

}  // namespace tessera
