// What a checkpoint shall hold. Owns: the description. Not: the memory that its slices point into.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/slice.h"

namespace tessera {

struct CheckpointFile {
  std::string name;  // relative to the checkpoint, with '/': "config.json", "tokenizer/vocab.json"
  std::string content;
};

// Of several writers each gives its own slices; state_json, config_yaml, files, info and best_loss
// are rank 0's, and ignored on the others.
struct CheckpointRequest {
  std::int64_t step = 0;
  // The memory must stay valid until finish() or the writer's destruction. Of several writers each
  // may hold parts of a tensor, or nothing: all slices together cover every tensor exactly once.
  std::vector<SliceGroup> groups;
  std::shared_ptr<const void> copies;  // what slices point into that nothing else keeps, or null
  std::vector<int>
      region_order;        // regions as the next step updates them; others are written after these
  std::string state_json;  // the trainer's own state; deterministic
  std::string config_yaml;
  std::vector<CheckpointFile> files;  // further small files
  std::vector<std::pair<std::string, std::string>>
      info;                         // volatile facts (host, versions) for info.json
  std::optional<double> best_loss;  // set: this state is the best so far, with this evaluation loss
};

}  // namespace tessera
