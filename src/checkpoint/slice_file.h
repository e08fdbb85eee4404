// Lays out the slices of one group as a safetensors file. Owns: the file's name, order and names
// inside it. Not: writing it.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/manifest.h"
#include "checkpoint/slice.h"

namespace tessera {

struct SliceFilePlan {
  FileEntry entry;            // complete but for the slices' checksums
  std::string header;         // first bytes of the file
  std::vector<Slice> slices;  // slices[i] belongs to entry.slices[i]
};

// Position of each region in the order in which the next step updates them.
using RegionOrder = std::map<int, std::size_t>;

// Which of the files of one group: of several writers each has its own.
struct FileShare {
  int writer = 0, writers = 1;
};

// "model.safetensors" of a single writer, "model-00002-of-00004.safetensors" of the second of four.
std::string slice_file_name(const std::string& stem, FileShare share);
// The reverse: "model".
std::string_view slice_file_stem(std::string_view file_name);

// A whole tensor keeps its name and shape, so a file of whole tensors is a model that Hugging Face
// reads; a part is a row of elements named "name[begin:end]". Slices lie by region order, wider
// dtypes first. Empty parts are left out. Error{kInternal} on a slice that contradicts itself or
// comes twice.
SliceFilePlan plan_slice_file(const SliceGroup& group, const RegionOrder& order,
                              FileShare share = {});

// Position of a region; regions that the order lacks come last.
std::size_t region_position(const RegionOrder& order, int region);

}  // namespace tessera
