#include "checkpoint/slice_file.h"

#include <algorithm>
#include <cstdio>
#include <limits>
#include <numeric>

#include "base/error.h"
#include "base/hash.h"

namespace tessera {
namespace {

void require_valid(const Slice& slice) {
  const auto count = element_count(slice.shape);
  if (!count || slice.begin < 0 || slice.begin > slice.end || slice.end > *count ||
      (slice.data == nullptr && slice.begin != slice.end) || slice.name.empty()) {
    throw Error(ErrorKind::kInternal, "cannot save the tensor '" + slice.name + "': its range " +
                                          std::to_string(slice.begin) + " to " +
                                          std::to_string(slice.end) +
                                          " is not in its shape, or it has no data");
  }
}

bool is_whole(const Slice& slice) {
  return slice.begin == 0 && slice.end == element_count(slice.shape);
}

TensorSpec spec_of(const Slice& slice) {
  if (is_whole(slice)) return {slice.name, slice.dtype, slice.shape};
  return {slice.name + "[" + std::to_string(slice.begin) + ":" + std::to_string(slice.end) + "]",
          slice.dtype,
          {slice.end - slice.begin}};
}

std::vector<Slice> ordered_slices(const SliceGroup& group, const RegionOrder& order) {
  std::vector<Slice> slices;
  for (const Slice& slice : group.slices) {
    require_valid(slice);
    if (slice.begin != slice.end || is_whole(slice)) slices.push_back(slice);
  }
  std::stable_sort(slices.begin(), slices.end(), [&](const Slice& a, const Slice& b) {
    return region_position(order, a.region) < region_position(order, b.region);
  });
  return slices;
}

constexpr std::string_view kEnding = ".safetensors";
constexpr std::string_view kOf = "-of-";

// Without the digits at its end; nothing where there are fewer than are written.
std::string_view without_number(std::string_view text) {
  std::size_t digits = 0;
  while (digits < text.size() && text[text.size() - 1 - digits] >= '0' &&
         text[text.size() - 1 - digits] <= '9') {
    ++digits;
  }
  return digits < 5 ? std::string_view() : text.substr(0, text.size() - digits);
}

}  // namespace

std::string slice_file_name(const std::string& stem, FileShare share) {
  if (share.writers == 1) return stem + std::string(kEnding);
  char number[64];
  std::snprintf(number, sizeof number, "-%05d-of-%05d", share.writer + 1, share.writers);
  return stem + number + std::string(kEnding);
}

std::string_view slice_file_stem(std::string_view file_name) {
  std::string_view stem = file_name;
  if (stem.ends_with(kEnding)) stem.remove_suffix(kEnding.size());
  std::string_view rest = without_number(stem);
  if (!rest.ends_with(kOf)) return stem;
  rest.remove_suffix(kOf.size());
  rest = without_number(rest);
  return rest.size() > 1 && rest.ends_with('-') ? rest.substr(0, rest.size() - 1) : stem;
}

std::size_t region_position(const RegionOrder& order, int region) {
  const auto found = order.find(region);
  return found == order.end() ? std::numeric_limits<std::size_t>::max() : found->second;
}

SliceFilePlan plan_slice_file(const SliceGroup& group, const RegionOrder& order, FileShare share) {
  const std::vector<Slice> slices = ordered_slices(group, order);
  std::vector<TensorSpec> specs;
  for (const Slice& slice : slices) specs.push_back(spec_of(slice));
  SafetensorsLayout layout = plan_safetensors(specs);

  std::vector<std::size_t> by_offset(slices.size());
  std::iota(by_offset.begin(), by_offset.end(), std::size_t{0});
  // A tensor without elements shares its offset with the one after it.
  std::sort(by_offset.begin(), by_offset.end(), [&](std::size_t a, std::size_t b) {
    if (layout.offsets[a] != layout.offsets[b]) return layout.offsets[a] < layout.offsets[b];
    const bool a_empty = slices[a].begin == slices[a].end;
    const bool b_empty = slices[b].begin == slices[b].end;
    return a_empty != b_empty ? a_empty : a < b;
  });

  SliceFilePlan plan;
  plan.entry.name = slice_file_name(group.stem, share);
  plan.entry.file_class = FileClass::kSlices;
  plan.entry.size = layout.file_size;
  plan.entry.header_bytes = layout.header.size();
  plan.entry.checksum = content_hash(layout.header);
  plan.header = std::move(layout.header);
  for (const std::size_t i : by_offset) {
    const Slice& slice = slices[i];
    plan.entry.slices.push_back(
        {slice.name, slice.dtype, slice.shape, slice.begin, slice.end, layout.offsets[i], {}});
    plan.slices.push_back(slice);
  }
  return plan;
}

}  // namespace tessera
