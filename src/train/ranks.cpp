#include "train/ranks.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/host_name.h"
#include "config/load.h"
#include "train/save_group.h"

namespace tessera {
namespace {

// Operations of the first step whose order is compared over all ranks; a long chain of units has
// more, but who diverges does so early.
constexpr int kCheckedOperations = 64;

// Who hosts the store may start a little later than who uses it.
constexpr std::chrono::milliseconds kMostToConnect{60000};

// Settings that concern one rank alone.
bool may_differ(std::string_view key) {
  for (const std::string_view own :
       {"run.device", "run.threads", "run.notes", "data.cache_dir", "data.prepare_threads"}) {
    if (key == own) return true;
  }
  return key.starts_with("log.");
}

std::chrono::milliseconds milliseconds_of(double seconds) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000));
}

void check_strategy(Strategy strategy, const RankPlace& place) {
  if (strategy != Strategy::kNone || place.alone()) return;
  throw Error(ErrorKind::kConfig,
              "parallel.strategy is none, but " + std::to_string(place.world_size) +
                  " ranks were started (by " + std::string(to_string(place.launched_by)) + ")",
              "parallel.strategy", "Start one process, or set parallel.strategy=ddp.");
}

std::string_view transport_name(Transport transport) {
  switch (transport) {
    case Transport::kAuto: return "auto";
    case Transport::kGloo: return "gloo";
    case Transport::kShm: return "shm";
    case Transport::kMpi: return "mpi";
    case Transport::kNccl: return "nccl";
  }
  return "auto";
}

// The whole content, or nothing where there is no such file.
std::string content_of(FileSystem& files, const Path& path) {
  return files.exists(path) ? files.read(path) : std::string();
}

}  // namespace

Ranks::Ranks(const TrainRequest& request, Log& log) : place_(request.place) {
  check_strategy(request.config.parallel.strategy, place_);
  if (alone()) return;
  watch_ = std::make_unique<RankWatch>(RankWatch::Options{
      .place = place_,
      .heartbeat_timeout = milliseconds_of(request.config.parallel.heartbeat_timeout),
      .connect_timeout = std::min(milliseconds_of(request.config.parallel.timeout), kMostToConnect),
      .on_lost = request.end_process});
  watch_->wait_for_all(milliseconds_of(request.config.parallel.timeout),
                       [&log](const std::string& text) { log.info(text); });
  require_same_settings(request);
  nodes_.clear();
  for (const std::string& node : watch_->exchange("nodes", std::to_string(place_.node))) {
    nodes_.push_back(std::stoi(node));
  }
}

// A rank with another learning rate or text would train another model, and nothing would show it.
void Ranks::require_same_settings(const TrainRequest& request) {
  const std::string of_first = from_first("settings", [&request] { return request.config_yaml; });
  std::string mine;
  for (const ConfigDifference& difference :
       compare_configs(config_from_yaml(of_first, "the settings of rank 0"), request.config)) {
    if (may_differ(difference.key)) continue;
    mine += (mine.empty() ? "" : "; ") + std::string(difference.key) + " is " +
            difference.new_value + " there, " + difference.old_value + " on rank 0";
  }
  const std::vector<std::string> all = watch_->exchange("same-settings", mine);
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].empty()) continue;
    throw Error(ErrorKind::kConfig,
                "rank " + std::to_string(rank) + " has other settings than rank 0: " + all[rank],
                {}, "Start every rank with the same config and the same overrides.");
  }
}

std::string Ranks::from_first(std::string_view name, const std::function<std::string()>& decide) {
  if (!first()) return watch_->hear(name);
  std::string value = decide();
  if (!alone()) watch_->tell(name, value);
  return value;
}

std::int64_t Ranks::least(std::string_view name, std::int64_t value) {
  if (alone()) return value;
  for (const std::string& other : watch_->exchange(name, std::to_string(value))) {
    value = std::min<std::int64_t>(value, std::stoll(other));
  }
  return value;
}

void Ranks::host_by_host(std::string_view name, const std::function<void()>& work) {
  const std::string key = std::string(name) + "/" + std::to_string(place_.node);
  if (place_.local_rank != 0) watch_->hear(key);
  work();
  if (place_.local_rank == 0 && !alone()) watch_->tell(key, "done");
}

void Ranks::meet(std::string_view name) {
  if (!alone()) watch_->meet(name);
}

void Ranks::require_shared(FileSystem& files, const Path& folder) {
  if (alone()) return;
  const Path mark = folder / ".shared";
  const std::string expected = from_first("shared", [&] {
    // Unlike any that an older run left there; not the store's prefix, which holds the job's
    // secret.
    const std::string text =
        place_.job_id + "/" + std::to_string(place_.restart) + "/" +
        std::to_string(std::chrono::system_clock::now().time_since_epoch().count());
    const auto file = files.create(mark);
    file->write(std::as_bytes(std::span(text.data(), text.size())));
    file->close();
    return text;
  });
  // Network file systems show a new file a little later elsewhere.
  bool seen = false;
  for (int attempt = 0; attempt < 50 && !seen; ++attempt) {
    if (attempt > 0) std::this_thread::sleep_for(std::chrono::milliseconds(100));
    seen = content_of(files, mark) == expected;
  }
  const std::vector<std::string> hosts = watch_->exchange("sees-folder", seen ? "" : host_name());
  if (first()) files.remove_all(mark);
  for (std::size_t rank = 0; rank < hosts.size(); ++rank) {
    if (hosts[rank].empty()) continue;
    throw Error(ErrorKind::kIo,
                "rank " + std::to_string(rank) + " (host " + hosts[rank] +
                    ") does not see the files that rank 0 writes: the run's folder is not on "
                    "storage that all hosts share",
                folder.string(),
                "Set run.dir to a folder on shared storage, with the same path on every host: a "
                "restart on other hosts needs the checkpoints.");
  }
}

void Ranks::require_equal(std::string_view name, const std::vector<std::string>& names,
                          const std::vector<std::string>& values, int different) {
  if (alone()) return;
  std::string mine;
  for (const std::string& value : values) mine += value + "\n";
  const std::vector<std::string> all = watch_->exchange(name, mine);
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    const std::size_t equal = rank % static_cast<std::size_t>(different);
    const std::string& expected = all[equal];
    if (all[rank] == expected) continue;
    std::size_t entry = 0, line = 0;
    for (std::size_t i = 0; i < expected.size() && i < all[rank].size(); ++i) {
      if (expected[i] != all[rank][i]) break;
      if (expected[i] == '\n') line = ++entry;
    }
    throw Error(ErrorKind::kInternal,
                "rank " + std::to_string(rank) + " differs from rank " + std::to_string(equal) +
                    " in " + (line < names.size() ? names[line] : std::string("their number")),
                std::string(name),
                "All ranks must run the same build on the same kind of processor, from the same "
                "files. The last checkpoint is not affected.");
  }
}

void Ranks::set_phase(const std::string& phase) {
  if (watch_) watch_->set_phase(phase);
}

MeshLayout Ranks::layout(const ParallelConfig& config, int world_size) const {
  if (alone()) return mesh_layout(config, std::vector<int>(static_cast<std::size_t>(world_size)));
  return mesh_layout(config, nodes_);
}

GroupPlace Ranks::place_of(const RankGroup& group, const ParallelConfig& config,
                           const at::Device& device) const {
  GroupPlace place{.rank = group.rank,
                   .world_size = group.size(),
                   .local_rank = 0,
                   .local_world_size = 0,
                   .world_ranks = group.ranks,
                   .store_host = place_.store_host,
                   .store_port = place_.store_port,
                   .key_prefix = store_prefix(place_) + group.name + "/",
                   .timeout = milliseconds_of(config.timeout),
                   .device = device};
  const auto node_of = [this](int rank) { return nodes_[static_cast<std::size_t>(rank)]; };
  for (const int rank : group.ranks) {
    if (node_of(rank) != node_of(place_.rank)) continue;
    place.local_rank += rank < place_.rank ? 1 : 0;
    ++place.local_world_size;
  }
  if (group.size() == place_.world_size) place.world_ranks.clear();  // they are in their own order
  return place;
}

MeshCommunicators Ranks::connect(const ParallelConfig& config, const MeshLayout& layout,
                                 const at::Device& device, StepTrace& trace) {
  if (alone()) return MeshCommunicators(MeshLayout{}, 0, {});
  const auto make = [&](const RankGroup& group) {
    return make_communicator(transport_name(config.transport), place_of(group, config, device));
  };
  const auto wrap = [&](std::unique_ptr<Communicator> communicator, const RankGroup& group) {
    const bool world = group.name == "world";
    return make_traced_communicator(
        make_watched_communicator(std::move(communicator), *watch_, device, kCheckedOperations,
                                  world ? RankGroup{} : group),
        group.name, trace);
  };
  watch_->set_phase("connecting");
  try {
    return MeshCommunicators(layout, place_.rank, make, wrap);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kComm) throw;
    throw watch_->explain(error);
  }
}

std::unique_ptr<SaveGroup> Ranks::save_group(int writers) {
  if (writers == 1) return first() ? make_single_save_group() : nullptr;
  return rank() < writers ? make_save_group(*watch_, rank(), writers) : nullptr;
}

Error Ranks::explain(const Error& error) {
  // A failed collective has been explained where it was waited for.
  if (watch_ && error.kind() != ErrorKind::kComm) watch_->report(error);
  return error;
}

void Ranks::finish() {
  if (watch_) watch_->finish();
}

}  // namespace tessera
