#include "checkpoint/save_job.h"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>

#include "base/error.h"
#include "checkpoint/staging.h"

namespace tessera {
namespace {

// Tensor names are unique in a checkpoint, whatever their file, but parts of one tensor may lie in
// several.
void require_disjoint(const std::vector<SliceGroup>& groups) {
  std::map<std::string_view, std::vector<const Slice*>> slices_of;
  for (const SliceGroup& group : groups) {
    for (const Slice& slice : group.slices) slices_of[slice.name].push_back(&slice);
  }
  for (auto& [name, slices] : slices_of) {
    std::sort(slices.begin(), slices.end(),
              [](const Slice* a, const Slice* b) { return a->begin < b->begin; });
    for (std::size_t i = 1; i < slices.size(); ++i) {
      const Slice &before = *slices[i - 1], &slice = *slices[i];
      if (slice.begin < before.end || slice.dtype != before.dtype || slice.shape != before.shape) {
        throw Error(ErrorKind::kInternal,
                    "cannot save the tensor '" + std::string(name) +
                        "': it is given twice, or its parts contradict each other");
      }
    }
  }
}

// The order of writing: by region across all files, then as the slices lie in their file.
std::vector<StreamItem> stream_items(SaveJob& job, const RegionOrder& order) {
  for (std::size_t plan = 0; plan < job.plans.size(); ++plan) {
    for (std::size_t slice = 0; slice < job.plans[plan].slices.size(); ++slice)
      job.places.emplace_back(plan, slice);
  }
  std::stable_sort(job.places.begin(), job.places.end(), [&](const auto& a, const auto& b) {
    return region_position(order, job.plans[a.first].slices[a.second].region) <
           region_position(order, job.plans[b.first].slices[b.second].region);
  });
  std::vector<StreamItem> items;
  for (const auto& [plan, slice] : job.places) {
    const SliceEntry& entry = job.plans[plan].entry.slices[slice];
    const Slice& source = job.plans[plan].slices[slice];
    items.push_back({{source.data, static_cast<std::size_t>(entry.bytes())},
                     source.region,
                     plan,
                     entry.offset});
    job.slice_bytes += entry.bytes();
  }
  return items;
}

// A folder in a stem would have to be made by some writer, for all.
void require_plain_stem(const std::string& stem) {
  if (stem.find('/') == std::string::npos) return;
  throw Error(ErrorKind::kInternal,
              "a checkpoint's tensors cannot lie in a folder: '" + stem + "'");
}

}  // namespace

std::unique_ptr<SaveJob> make_save_job(CheckpointRequest request, std::uint64_t copy_limit_bytes,
                                       FileShare share) {
  if (request.step < 0)
    throw Error(ErrorKind::kInternal, "cannot save a checkpoint of a negative step");
  require_disjoint(request.groups);
  RegionOrder order;
  for (const int region : request.region_order) order.emplace(region, order.size());
  auto job = std::make_unique<SaveJob>();
  std::set<std::string> names = {std::string(kManifestName), std::string(kStateName),
                                 std::string(kConfigName), std::string(kInfoName)};
  for (const SliceGroup& group : request.groups) {
    require_plain_stem(group.stem);
    job->plans.push_back(plan_slice_file(group, order, share));
  }
  std::vector<std::string> given;
  for (const SliceFilePlan& plan : job->plans) given.push_back(plan.entry.name);
  for (const CheckpointFile& file : request.files) given.push_back(file.name);
  for (const std::string& name : given) {
    if (!is_safe_file_name(name) || !names.insert(name).second) {
      throw Error(ErrorKind::kInternal,
                  "a checkpoint's file may not be named '" + name + "', or comes twice");
    }
  }
  job->streamer = std::make_unique<SliceStreamer>(stream_items(*job, order), copy_limit_bytes);
  job->request = std::move(request);
  return job;
}

std::vector<FileEntry> write_slice_files(SaveJob& job, FileSystem& files, const Path& folder) {
  std::vector<std::unique_ptr<WritableFile>> open;
  for (const SliceFilePlan& plan : job.plans) {
    open.push_back(create_inside(files, folder, plan.entry.name));
    open.back()->write(plan.header);
  }
  std::vector<std::string> checksums = job.streamer->run(open);
  for (std::size_t i = 0; i < checksums.size(); ++i) {
    const auto& [plan, slice] = job.places[i];
    job.plans[plan].entry.slices[slice].checksum = std::move(checksums[i]);
  }
  for (const auto& file : open) {
    file->sync();
    file->close();
  }
  std::vector<FileEntry> entries;
  for (const SliceFilePlan& plan : job.plans) entries.push_back(plan.entry);
  return entries;
}

}  // namespace tessera
