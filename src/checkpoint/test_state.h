// For tests: a small training state whose content depends on the step only.
#pragma once

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/catalog.h"
#include "checkpoint/writer.h"

namespace tessera {

class TestState {
 public:
  static constexpr int kRegions = 3;

  explicit TestState(std::int64_t step, std::int64_t columns = 5) : step_(step), columns_(columns) {
    for (int region = 0; region < kRegions; ++region) {
      const std::string unit = "h." + std::to_string(region);
      add(0, unit + ".weight", {region + 2, columns}, region);
      add(0, unit + ".bias", {columns}, region);
      add(1, "exp_avg/" + unit + ".weight", {region + 2, columns}, region);
      add(1, "exp_avg/" + unit + ".bias", {columns}, region);
    }
    add(0, "frozen", {4}, Slice::kNeverRewritten);
    add(1, "nothing", {0, 7}, Slice::kNeverRewritten);
  }

  CheckpointRequest request() {
    CheckpointRequest request;
    request.step = step_;
    request.groups = {{"model", slices_[0]}, {"optimizer", slices_[1]}};
    for (int region = 0; region < kRegions; ++region) request.region_order.push_back(region);
    request.state_json = "{\"step\": " + std::to_string(step_) + "}\n";
    request.config_yaml = "run:\n  seed: 1\n";
    request.files = {{"config.json", "{}"},
                     {"tokenizer/vocab.json", "{\"a\": 0}"},
                     {"tokenizer/merges.txt", ""}};
    request.info = {{"host", "here"}};
    return request;
  }

  // The part of one rank where the first `holders` ranks hold the state: all tensors of a region
  // lie one behind the other, and each rank has an equal share of that, so that it may hold nothing
  // of a tensor. Further ranks hold nothing at all.
  CheckpointRequest part(int rank, int holders) {
    CheckpointRequest all = request();
    for (SliceGroup& group : all.groups) {
      std::map<int, std::int64_t> sizes, begins;
      for (const Slice& slice : group.slices) sizes[slice.region] += slice.end;
      std::vector<Slice> mine;
      for (Slice& slice : group.slices) {
        const std::int64_t size = sizes[slice.region], tensor = begins[slice.region];
        begins[slice.region] += slice.end;
        const auto cut = [&](std::int64_t at) {
          return std::clamp(size * at / holders - tensor, std::int64_t{0}, slice.end);
        };
        slice.begin = cut(rank);
        slice.end = cut(rank + 1);
        slice.data += slice.begin * std::int64_t{sizeof(float)};
        mine.push_back(slice);
      }
      group.slices = rank < holders ? std::move(mine) : std::vector<Slice>();
    }
    if (rank > holders) all.groups.clear();
    return all;
  }

  std::vector<float>& values(std::size_t index) { return memory_[index]; }
  std::size_t size() const { return memory_.size(); }
  int region(std::size_t index) const { return regions_[index]; }

  // Empty when the checkpoint holds exactly this state; else what differs.
  std::string difference(const CheckpointReader& reader) const {
    if (reader.step() != step_) return "step " + std::to_string(reader.step());
    if (reader.state_json() != "{\"step\": " + std::to_string(step_) + "}\n") return "state.json";
    if (reader.config_yaml() != "run:\n  seed: 1\n") return "config.yaml";
    if (reader.file("tokenizer/vocab.json") != "{\"a\": 0}") return "vocab.json";
    if (!reader.file("tokenizer/merges.txt").empty()) return "merges.txt";
    std::size_t tensors = 0;
    for (const auto& group : slices_) {
      for (const Slice& slice : group) {
        const TensorSpec* spec = reader.find(slice.name);
        if (spec == nullptr || spec->shape != slice.shape || spec->dtype != slice.dtype)
          return slice.name;
        std::vector<std::byte> bytes(static_cast<std::size_t>(slice.end) * sizeof(float));
        reader.read(slice.name, bytes);
        const std::vector<float> right = content(step_, tensors++, bytes.size() / sizeof(float));
        if (!bytes.empty() && std::memcmp(bytes.data(), right.data(), bytes.size()) != 0)
          return slice.name;
      }
    }
    return reader.tensors().size() == tensors ? "" : "further tensors";
  }

 private:
  static std::vector<float> content(std::int64_t step, std::size_t tensor, std::size_t count) {
    std::vector<float> values(count);
    for (std::size_t i = 0; i < count; ++i) {
      values[i] = static_cast<float>(step) * 1000.0f + static_cast<float>(tensor) * 50.0f +
                  static_cast<float>(i);
    }
    return values;
  }

  void add(std::size_t group, const std::string& name, std::vector<std::int64_t> shape,
           int region) {
    const std::int64_t count = *element_count(shape);
    // The order of difference(): all of the first group, then the second.
    names_.push_back(name);
    memory_.emplace_back(static_cast<std::size_t>(count));
    regions_.push_back(region);
    slices_[group].push_back({name, Dtype::kF32, std::move(shape), 0, count,
                              reinterpret_cast<const std::byte*>(memory_.back().data()), region});
    refill();
  }

  void refill() {
    std::size_t tensor = 0;
    for (const auto& group : slices_) {
      for (const Slice& slice : group) {
        const auto values = content(step_, tensor++, static_cast<std::size_t>(slice.end));
        for (std::size_t i = 0; i < names_.size(); ++i) {
          if (names_[i] == slice.name) std::copy(values.begin(), values.end(), memory_[i].begin());
        }
      }
    }
  }

  std::int64_t step_, columns_;
  std::deque<std::vector<float>> memory_;  // addresses stay
  std::vector<std::string> names_;
  std::vector<int> regions_;
  std::vector<Slice> slices_[2];
};

}  // namespace tessera
