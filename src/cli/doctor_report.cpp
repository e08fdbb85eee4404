#include "cli/doctor_report.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text_format.h"
#include "cli/engine_loader.h"
#include "cli/program.h"

namespace tessera::cli {
namespace {

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;
constexpr std::chrono::seconds kProbeTime{120};
constexpr const char* kBuild = "Run `make build` in the project's folder.";

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// The folder itself, or the nearest one above it that exists.
Path existing_parent(Path path) {
  std::error_code error;
  while (!path.empty() && !std::filesystem::exists(path, error) && path.has_parent_path() &&
         path.parent_path() != path)
    path = path.parent_path();
  return path;
}

FolderFacts folder_facts(const std::string& use, const Path& path) {
  FolderFacts facts{use, path, 0, false};
  const Path there = existing_parent(path);
  facts.writable = access(there.c_str(), W_OK | X_OK) == 0;
  try {
    facts.free_bytes = make_posix_file_system()->free_bytes(there);
  } catch (const Error&) {
    facts.writable = false;  // a folder that cannot even be asked
  }
  return facts;
}

Path cache_folder() {
  if (const std::string given = variable("TESSERA_CACHE"); !given.empty()) return given;
  const std::string home = variable("HOME");
  return Path(home.empty() ? "/" : home) / ".cache/tessera";
}

// From torch/version.py: `__version__ = '2.13.0+cpu'`.
std::string installed_torch_version(const Path& libraries) {
  // In the package it lies above the libraries; `make install` copies it beside them.
  const auto files = make_posix_file_system();
  std::string text;
  try {
    const Path beside = libraries / "version.py";
    text = files->read(files->exists(beside) ? beside : libraries.parent_path() / "version.py");
  } catch (const Error&) {
    return {};
  }
  const std::size_t name = text.find("__version__");
  const std::size_t open = text.find('\'', name);
  if (name == std::string::npos || open == std::string::npos) return {};
  return text.substr(open + 1, text.find('\'', open + 1) - open - 1);
}

std::string joined(const std::vector<std::string>& words, const char* between,
                   const char* none = "none") {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : between) + word;
  return text.empty() ? none : text;
}

// "2.9.1+cpu" is older than 2.13: numbers, not text.
bool older_than_2_13(const std::string& version) {
  char* end = nullptr;
  const long major = std::strtol(version.c_str(), &end, 10);
  const long minor = *end == '.' ? std::strtol(end + 1, nullptr, 10) : 0;
  return major < 2 || (major == 2 && minor < 13);
}

void find_engine_problems(const DoctorReport& report, std::vector<Problem>& problems) {
  if (report.engine.empty()) {
    std::vector<std::string> looked;
    for (const Path& path : report.engine_candidates) looked.push_back(path.string());
    std::string text = "the engine is not built (looked for ";
    text.append(joined(looked, ", ")).append(")");
    problems.push_back({std::move(text), kBuild, true});
  } else if (!report.probe.facts) {
    std::error_code error;
    const bool gone =
        !report.torch_folder.empty() && !std::filesystem::exists(report.torch_folder, error);
    std::string text = "the engine ";
    text.append(report.engine.string()).append(" does not work: ").append(report.probe.failure);
    if (gone) {
      text.append("; it was built for the torch in ").append(report.torch_folder.string());
      text.append(", which is not there now");
    }
    problems.push_back({std::move(text),
                        std::string(kBuild) + " It finds or installs torch, and links again.",
                        true});
  } else if (older_than_2_13(report.probe.facts->torch_version)) {
    problems.push_back(
        {"torch is " + report.probe.facts->torch_version + "; the engine is made for 2.13 or newer",
         std::string(kBuild) + " Let TORCH_PYTHON name a python with a newer torch.", false});
  }
}

void find_machine_problems(const DoctorReport& report, std::vector<Problem>& problems) {
  const MachineFacts& machine = report.machine;
  if (!machine.cpu.avx2 && !machine.cpu.neon)
    problems.push_back({"this processor has no AVX2: training is several times slower",
                        "Use a machine with a newer processor."});
  if (machine.usable_memory_bytes() < kGiB)
    problems.push_back({"only " + format_bytes(machine.usable_memory_bytes()) +
                            " of memory can be used: torch alone takes about 0.3 GiB",
                        machine.memory_limit_bytes != 0
                            ? "Raise the container's memory limit."
                            : "End other programs, or use a larger machine."});
  const long threads = std::strtol(report.thread_limit.c_str(), nullptr, 10);
  if (threads > 0 && threads < machine.usable_processors())
    problems.push_back({"OMP_NUM_THREADS=" + report.thread_limit + " leaves " +
                            std::to_string(machine.usable_processors() - threads) + " of " +
                            std::to_string(machine.usable_processors()) + " processors idle",
                        "Run `unset OMP_NUM_THREADS`."});
  const bool only_cpu = report.probe.facts && report.probe.facts->devices.size() <= 1;
  if (!machine.gpus.empty() && only_cpu)
    problems.push_back(
        {"this machine has a GPU (" + joined(machine.gpus, ", ") + "), but torch " +
             report.probe.facts->torch_version + " sees none",
         "Run `make build TORCH_PYTHON=…` with a python whose torch is made for it."});
}

void find_folder_problems(const DoctorReport& report, std::vector<Problem>& problems) {
  for (const FolderFacts& folder : report.folders) {
    const std::string name = "the " + folder.use + " " + folder.path.string();
    const bool cache = folder.use == "cache";
    const std::string other = cache ? "Set TESSERA_CACHE to another folder."
                                    : "Give the run another one: run.dir=FOLDER.";
    if (!folder.writable)
      problems.push_back({name + " cannot be written", other});
    else if (folder.free_bytes < kGiB)
      problems.push_back({name + " has only " + format_bytes(folder.free_bytes) + " free",
                          "Make room there. " + other});
  }
}

}  // namespace

bool DoctorReport::training_possible() const {
  return std::none_of(problems.begin(), problems.end(),
                      [](const Problem& problem) { return problem.prevents_training; });
}

Path linked_torch_folder(const Path& engine) {
  const MappedFile file(engine);
  const std::string_view text = file.text();
  // As `make install` lays it out: a folder beside the engine, or a link to torch's own.
  constexpr std::string_view kBeside("$ORIGIN/torch\0", 14);
  if (text.find(kBeside) != std::string_view::npos) {
    const Path beside = engine.parent_path() / "torch";
    std::error_code error;
    const Path real = std::filesystem::canonical(beside, error);
    return error ? beside : real;
  }
  constexpr std::string_view kEnding = "/torch/lib";
  for (std::size_t at = text.find(kEnding); at != std::string_view::npos;
       at = text.find(kEnding, at + 1)) {
    // One entry of a run path: between ':' or the string's ends.
    const std::size_t end = at + kEnding.size();
    if (end < text.size() && text[end] != '\0' && text[end] != ':') continue;
    const std::size_t before = text.find_last_of(std::string_view("\0:", 2), at);
    const std::size_t begin = before == std::string_view::npos ? 0 : before + 1;
    if (text[begin] == '/') return Path(text.substr(begin, end - begin));
  }
  return {};
}

DoctorReport collect_report(bool measure) {
  DoctorReport report;
  report.version = version();
  report.program = program_path();
  report.machine = machine_facts();
  report.thread_limit = variable("OMP_NUM_THREADS");
  std::error_code error;
  report.folders.push_back(folder_facts("working folder", std::filesystem::current_path(error)));
  report.folders.push_back(folder_facts("cache", cache_folder()));
  report.engine_candidates = engine_candidates();
  for (const Path& path : report.engine_candidates)
    if (report.engine.empty() && std::filesystem::exists(path, error)) report.engine = path;
  report.measured = measure;
  if (!report.engine.empty()) {
    try {
      report.torch_folder = linked_torch_folder(report.engine);
      report.torch_version = installed_torch_version(report.torch_folder);
    } catch (const Error&) {
      report.torch_folder.clear();  // the probe says why the file is no engine
    }
    report.probe =
        probe_engine([]() -> const EngineApi& { return load_engine(); }, measure, kProbeTime);
  }
  report.problems = find_problems(report);
  return report;
}

std::vector<Problem> find_problems(const DoctorReport& report) {
  std::vector<Problem> problems;
  find_engine_problems(report, problems);
  find_machine_problems(report, problems);
  find_folder_problems(report, problems);
  std::stable_partition(problems.begin(), problems.end(),
                        [](const Problem& problem) { return problem.prevents_training; });
  return problems;
}

}  // namespace tessera::cli
