// The tensors of one save, on one rank. Owns: which file and place each slice goes to, the order of
// writing, and the files' flush. Not: the small files beside them, nor the folder (writer.h).
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "base/file_system.h"
#include "checkpoint/manifest.h"
#include "checkpoint/save_request.h"
#include "checkpoint/slice_file.h"
#include "checkpoint/streamer.h"

namespace tessera {

// From start() to the save's end. Immutable once its thread runs, but for the streamer and, by that
// thread, the checksums.
struct SaveJob {
  CheckpointRequest request;
  std::vector<SliceFilePlan> plans;
  std::vector<std::pair<std::size_t, std::size_t>> places;  // of each streamed item: plan, slice
  std::unique_ptr<SliceStreamer> streamer;
  std::uint64_t slice_bytes = 0;
  std::chrono::steady_clock::time_point begun = std::chrono::steady_clock::now();
};

// Error{kInternal} on slices or file names that contradict each other.
std::unique_ptr<SaveJob> make_save_job(CheckpointRequest request, std::uint64_t copy_limit_bytes,
                                       FileShare share);

// Streams the slices into files in `folder`, which is there, and flushes each file; not the folder.
std::vector<FileEntry> write_slice_files(SaveJob& job, FileSystem& files, const Path& folder);

}  // namespace tessera
