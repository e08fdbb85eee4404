#include "base/machine.h"

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <set>
#include <sstream>
#include <string_view>
#include <utility>

namespace tessera {
namespace {

// Files of /proc and /sys have no size; a missing one reads as empty.
std::string read_text(const Path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (file) text << file.rdbuf();
  return text.str();
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\n\"";
  const std::size_t begin = text.find_first_not_of(kBlank);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
}

// Calls visit(key, value) for each line "key<separator>value".
template <class Visit>
void for_each_pair(std::string_view text, char separator, Visit visit) {
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    const std::size_t at = line.find(separator);
    if (at != std::string_view::npos)
      visit(trimmed(line.substr(0, at)), trimmed(line.substr(at + 1)));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
  }
}

// The number at the start of `text`; `otherwise` where there is none ("max") or it is too large.
std::uint64_t number_or(std::string_view text, std::uint64_t otherwise) {
  text = trimmed(text);
  std::uint64_t value = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  return result.ec == std::errc() ? value : otherwise;
}

void read_features(std::string_view flags, CpuFeatures& cpu) {
  const std::pair<std::string_view, bool CpuFeatures::*> kNames[] = {
      {"avx2", &CpuFeatures::avx2},
      {"fma", &CpuFeatures::fma},
      {"f16c", &CpuFeatures::f16c},
      {"avx512f", &CpuFeatures::avx512f},
      {"avx512_bf16", &CpuFeatures::avx512_bf16},
      {"avx512_fp16", &CpuFeatures::avx512_fp16},
      {"amx_tile", &CpuFeatures::amx_tile},
      {"amx_bf16", &CpuFeatures::amx_bf16},
      {"asimd", &CpuFeatures::neon},
      {"bf16", &CpuFeatures::bf16}};
  std::istringstream words{std::string(flags)};
  for (std::string word; words >> word;)
    for (const auto& [name, member] : kNames)
      if (word == name) cpu.*member = true;
}

void read_processors(const Path& root, MachineFacts& facts) {
  std::set<std::pair<std::string, std::string>> cores;
  std::string package;
  for_each_pair(read_text(root / "proc/cpuinfo"), ':',
                [&](std::string_view key, std::string_view value) {
                  if (key == "processor") ++facts.processors;
                  if (key == "model name" && facts.cpu_model.empty()) facts.cpu_model = value;
                  if (key == "flags" || key == "Features") read_features(value, facts.cpu);
                  if (key == "physical id") package = value;
                  if (key == "core id") cores.emplace(package, value);
                });
  facts.cores = static_cast<int>(cores.size());
  cpu_set_t mask;
  CPU_ZERO(&mask);
  if (sched_getaffinity(0, sizeof mask, &mask) == 0) facts.allowed_processors = CPU_COUNT(&mask);
}

void read_memory(const Path& root, MachineFacts& facts) {
  for_each_pair(read_text(root / "proc/meminfo"), ':',
                [&](std::string_view key, std::string_view value) {
                  const std::uint64_t bytes = number_or(value, 0) * 1024;
                  if (key == "MemTotal") facts.memory_bytes = bytes;
                  if (key == "MemAvailable") facts.available_memory_bytes = bytes;
                  if (key == "SwapTotal") facts.swap_bytes = bytes;
                });
}

// The process's folder in a hierarchy of control groups and all above it, nearest first. Inside a
// container the path that the kernel names may not be there, but the root of the mount then is the
// container's own group.
std::vector<Path> group_folders(const Path& mount, std::string_view group) {
  std::vector<Path> folders;
  Path relative = Path(trimmed(group)).relative_path();
  for (; !relative.empty(); relative = relative.parent_path()) folders.push_back(mount / relative);
  folders.push_back(mount);
  return folders;
}

void limit_memory(const Path& folder, const char* limit_name, const char* usage_name,
                  MachineFacts& facts) {
  const std::uint64_t limit = number_or(read_text(folder / limit_name), 0);
  if (limit == 0 || limit >= facts.memory_bytes) return;  // version 1 writes a huge number for none
  if (facts.memory_limit_bytes == 0 || limit < facts.memory_limit_bytes) {
    facts.memory_limit_bytes = limit;
    facts.memory_limit_left_bytes =
        limit - std::min(limit, number_or(read_text(folder / usage_name), 0));
  }
}

void limit_processors(double quota, double period, MachineFacts& facts) {
  if (quota <= 0 || period <= 0) return;
  const double processors = quota / period;
  if (facts.processor_quota == 0 || processors < facts.processor_quota)
    facts.processor_quota = processors;
}

void read_control_groups(const Path& root, MachineFacts& facts) {
  const Path mount = root / "sys/fs/cgroup";
  std::istringstream lines(read_text(root / "proc/self/cgroup"));
  for (std::string line; std::getline(lines, line);) {
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const std::string group = line.substr(second + 1);
    if (controllers == ",,") {  // version 2
      for (const Path& folder : group_folders(mount, group)) {
        limit_memory(folder, "memory.max", "memory.current", facts);
        const std::string text = read_text(folder / "cpu.max");  // "200000 100000" or "max 100000"
        const std::size_t space = text.find(' ');
        if (space != std::string::npos)
          limit_processors(static_cast<double>(number_or(text, 0)),
                           static_cast<double>(number_or(text.substr(space), 0)), facts);
      }
    } else if (controllers.find(",memory,") != std::string::npos) {
      for (const Path& folder : group_folders(mount / "memory", group))
        limit_memory(folder, "memory.limit_in_bytes", "memory.usage_in_bytes", facts);
    } else if (controllers.find(",cpu,") != std::string::npos) {
      for (const Path& folder : group_folders(mount / "cpu", group))
        limit_processors(static_cast<double>(number_or(read_text(folder / "cpu.cfs_quota_us"), 0)),
                         static_cast<double>(number_or(read_text(folder / "cpu.cfs_period_us"), 0)),
                         facts);
    }
  }
}

void read_gpus(const Path& root, MachineFacts& facts) {
  const auto files = make_posix_file_system();
  const Path nvidia = root / "proc/driver/nvidia/gpus";
  for (const std::string& name : files->list(nvidia))
    for_each_pair(read_text(nvidia / name / "information"), ':',
                  [&](std::string_view key, std::string_view value) {
                    if (key == "Model") facts.gpus.emplace_back(value);
                  });
  // A container may show the device files without the driver's folder.
  if (facts.gpus.empty())
    for (const std::string& name : files->list(root / "dev"))
      if (name.size() > 6 && name.starts_with("nvidia") &&
          name.find_first_not_of("0123456789", 6) == std::string::npos)
        facts.gpus.push_back("/dev/" + name);
  if (files->exists(root / "dev/kfd")) facts.gpus.emplace_back("AMD (/dev/kfd)");
}

}  // namespace

std::vector<std::string> CpuFeatures::names() const {
  std::vector<std::string> result;
  const auto add = [&](bool present, const char* name) {
    if (present) result.emplace_back(name);
  };
  add(avx2, "avx2");
  add(fma, "fma");
  add(f16c, "f16c");
  add(avx512f, "avx512f");
  add(avx512_bf16, "avx512_bf16");
  add(avx512_fp16, "avx512_fp16");
  add(amx_tile, "amx_tile");
  add(amx_bf16, "amx_bf16");
  add(neon, "asimd");
  add(bf16, "bf16");
  return result;
}

int MachineFacts::usable_processors() const {
  int count = processors;
  if (allowed_processors > 0) count = std::min(count, allowed_processors);
  if (processor_quota > 0) count = std::min(count, static_cast<int>(std::ceil(processor_quota)));
  return std::max(count, 1);
}

std::uint64_t MachineFacts::usable_memory_bytes() const {
  if (memory_limit_bytes == 0) return available_memory_bytes;
  return std::min(available_memory_bytes, memory_limit_left_bytes);
}

MachineFacts machine_facts(const Path& root) {
  MachineFacts facts;
  for_each_pair(read_text(root / "etc/os-release"), '=',
                [&](std::string_view key, std::string_view value) {
                  if (key == "PRETTY_NAME") facts.system = value;
                });
  facts.kernel = "Linux " + std::string(trimmed(read_text(root / "proc/sys/kernel/osrelease")));
  read_processors(root, facts);
  read_memory(root, facts);
  read_control_groups(root, facts);
  read_gpus(root, facts);
  return facts;
}

}  // namespace tessera
