#include "base/process_memory.h"

#include <algorithm>
#include <array>
#include <cstdio>

namespace tessera {

ProcessMemory process_memory() {
  ProcessMemory memory;
  std::FILE* status = std::fopen("/proc/self/status", "re");
  if (status == nullptr) return memory;
  std::array<char, 256> line;
  unsigned long long kibibytes = 0;
  while (std::fgets(line.data(), static_cast<int>(line.size()), status) != nullptr) {
    if (std::sscanf(line.data(), "VmHWM: %llu kB", &kibibytes) == 1) {
      memory.peak_resident_bytes = std::uint64_t{kibibytes} * 1024;
    } else if (std::sscanf(line.data(), "VmRSS: %llu kB", &kibibytes) == 1) {
      memory.resident_bytes = std::uint64_t{kibibytes} * 1024;
      break;  // it follows VmHWM
    }
  }
  std::fclose(status);
  // The kernel counts in batches, so that the peak may lag behind by some pages.
  memory.peak_resident_bytes = std::max(memory.peak_resident_bytes, memory.resident_bytes);
  return memory;
}

}  // namespace tessera
