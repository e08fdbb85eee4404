#include "train/run_folder.h"

#include <unistd.h>

#include <array>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/host_name.h"
#include "base/machine.h"

namespace tessera {
namespace {

// First line that a command prints; empty if it fails.
std::string first_line_of(const char* command) {
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(::popen(command, "r"), ::pclose);
  std::array<char, 256> buffer{};
  if (!pipe || std::fgets(buffer.data(), buffer.size(), pipe.get()) == nullptr) return {};
  std::string line = buffer.data();
  while (!line.empty() && (line.back() == '\n' || line.back() == '\r')) line.pop_back();
  return line;
}

// create() and lock() leave these: they are not worth keeping.
bool is_empty_run(FileSystem& files, const Path& dir, const Path& checkpoints) {
  for (const std::string& name : files.list(dir)) {
    if (name != ".lock" && dir / name != checkpoints) return false;
  }
  for (const std::string& name : files.list(checkpoints)) {
    if (name != ".lock") return false;
  }
  return true;
}

}  // namespace

bool RunFolder::move_aside(Log& log) const {
  if (!files_->exists(dir_) || is_empty_run(*files_, dir_, checkpoints())) return false;
  for (int number = 1;; ++number) {
    Path old = dir_;
    old += ".old-" + std::to_string(number);
    if (files_->exists(old)) continue;
    files_->rename(dir_, old);
    log.info("--fresh: the run that was in " + dir_.string() + " is now in " + old.string());
    return true;
  }
}

void RunFolder::create() const {
  files_->create_directories(checkpoints());
  const Path probe = dir_ / (".writable." + std::to_string(::getpid()));
  files_->create(probe)->close();
  files_->remove_all(probe);
}

std::unique_ptr<FileLock> RunFolder::lock() const {
  auto lock = files_->try_lock(dir_ / ".lock");
  if (lock != nullptr) return lock;
  throw Error(ErrorKind::kIo, "another process is training in this run's folder", dir_.string(),
              "Wait for it or stop it, or choose another run.name or run.dir.");
}

void RunFolder::record(const std::string& config_yaml, const std::string& environment_json) const {
  write_file_atomically(*files_, dir_ / "config.yaml", config_yaml);
  write_file_atomically(*files_, dir_ / "environment.json", environment_json);
}

std::string environment_json(const std::string& command_line, const std::string& torch_version,
                             const std::string& device) {
  const MachineFacts machine = machine_facts();
  nlohmann::json text = {{"command", command_line},
                         {"tessera", TESSERA_VERSION},
                         {"torch", torch_version},
                         {"device", device},
                         {"host", host_name()},
                         {"system", machine.system},
                         {"kernel", machine.kernel},
                         {"cpu", machine.cpu_model},
                         {"cpu_features", machine.cpu.names()},
                         {"processors", machine.usable_processors()},
                         {"memory_bytes", machine.memory_bytes},
                         {"git_revision", nullptr}};
  const std::string revision = first_line_of("git rev-parse HEAD 2>/dev/null");
  if (!revision.empty()) {
    text["git_revision"] = revision;
    text["git_modified"] = !first_line_of("git status --porcelain 2>/dev/null").empty();
  }
  return text.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace tessera
