// What --dry-run and `plan` print alike. Owns: labels, the names of memory in JSON.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "model/gpt2.h"
#include "train/memory_plan.h"

namespace tessera {

std::string plan_row(const std::string& label, const std::string& value);
std::string bytes_text(std::int64_t bytes);
std::string model_text(const Gpt2Shape& shape);  // "12 layers, 12 heads, …"
std::string mesh_text(const MeshLayout& layout);
std::string batch_text(std::int64_t global_rows, std::int64_t micro_rows,
                       std::int64_t micro_batches, int ranks);
// "12.3GiB: parameters …"
std::string memory_text(const MemoryPlan& plan);

// Keys of JSON objects with their values.
using NamedBytes = std::vector<std::pair<std::string, std::int64_t>>;
NamedBytes named(const MemoryPlan& plan);  // every Holding, and total

}  // namespace tessera
