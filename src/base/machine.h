// What this machine offers: processors, their abilities, memory, and the limits of a container.
// Owns: reading it from the operating system (/proc, /sys). Not: what torch makes of it
// (EngineFacts of train/engine_api.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/file_system.h"

namespace tessera {

// The instruction sets that decide how fast a matrix product is; as the kernel lets programs use
// them.
struct CpuFeatures {
  bool avx2 = false, fma = false, f16c = false, avx512f = false, avx512_bf16 = false;
  bool avx512_fp16 = false, amx_tile = false, amx_bf16 = false, neon = false,
       bf16 = false;  // the last two: ARM

  // Names of those present, as /proc/cpuinfo spells them.
  std::vector<std::string> names() const;
  // Whether bf16 products run in hardware rather than by conversion (many times slower than f32).
  bool fast_bf16() const { return avx512_bf16 || amx_bf16 || bf16; }
  bool operator==(const CpuFeatures&) const = default;
};

struct MachineFacts {
  std::string system;     // "Debian GNU/Linux 12 (bookworm)"
  std::string kernel;     // "Linux 6.1.0"
  std::string cpu_model;  // empty where the system does not tell
  CpuFeatures cpu;
  int processors = 0;          // online in the machine
  int cores = 0;               // physical ones; 0: not known
  int allowed_processors = 0;  // by this process's affinity mask
  double processor_quota = 0;  // by the container's limit, in processors; 0: none
  std::uint64_t memory_bytes = 0, available_memory_bytes = 0, swap_bytes = 0;
  std::uint64_t memory_limit_bytes = 0;       // by the container or a cgroup; 0: none
  std::uint64_t memory_limit_left_bytes = 0;  // of that limit, not yet used
  std::vector<std::string> gpus;  // as the kernel's drivers show them, without their libraries

  // How many threads can run at once: the least of the three above, at least 1.
  int usable_processors() const;
  // What a run may take: the least of the available memory and what is left of the limit.
  std::uint64_t usable_memory_bytes() const;
};

// Reads once; what the system does not tell stays empty or 0. Never throws for that. `root` stands
// for "/" so that tests can show other machines (the affinity mask is always this process's).
MachineFacts machine_facts(const Path& root = "/");

}  // namespace tessera
