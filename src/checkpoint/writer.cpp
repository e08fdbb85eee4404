#include "checkpoint/writer.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <ctime>
#include <exception>
#include <iterator>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <system_error>
#include <thread>

#include "base/error.h"
#include "base/hash.h"
#include "checkpoint/catalog.h"
#include "checkpoint/manifest.h"
#include "checkpoint/retention.h"
#include "checkpoint/save_job.h"
#include "checkpoint/save_meeting.h"
#include "checkpoint/sealed_text.h"
#include "checkpoint/staging.h"

namespace tessera {
namespace {

using Clock = std::chrono::steady_clock;

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

std::string info_text(const SaveJob& job) {
  nlohmann::ordered_json info = {
      {"saved_at", utc_now()},
      {"write_seconds", std::chrono::duration<double>(Clock::now() - job.begun).count()},
      {"copied_bytes", job.streamer->copied_bytes()}};
  for (const auto& [key, value] : job.request.info) info[key] = value;
  return seal_json(info.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

// All but the slices and the manifest.
std::vector<FileEntry> write_small_files(const SaveJob& job, StagedFolder& staged) {
  std::vector<FileEntry> entries;
  const auto add = [&](const std::string& name, std::string_view content) {
    staged.write(name, content);
    entries.push_back({name, FileClass::kPlain, content.size(), content_hash(content), 0, {}});
  };
  add(std::string(kStateName), job.request.state_json);
  add(std::string(kConfigName), job.request.config_yaml);
  for (const CheckpointFile& file : job.request.files) add(file.name, file.content);
  staged.write(std::string(kInfoName), info_text(job));
  entries.push_back({std::string(kInfoName), FileClass::kSealed, 0, {}, 0, {}});
  return entries;
}

void require_cover(const std::vector<FileEntry>& entries) {
  const std::string fault = coverage_fault(entries);
  if (fault.empty()) return;
  throw Error(ErrorKind::kInternal, "the slices of all ranks are not the whole state: " + fault);
}

// Other ranks may write to another disk that has the same name on their host.
void require_seen(FileSystem& files, const Path& folder, const WriterReport& report, int rank) {
  for (const FileEntry& entry : report.files) {
    const Path path = folder / entry.name;
    if (files.exists(path) && files.file_size(path) == entry.size) continue;
    throw Error(ErrorKind::kIo,
                "rank " + std::to_string(rank) + " has written " + entry.name +
                    ", but rank 0 does not see it: the folder is not on storage that all ranks "
                    "share",
                path.string(), "Set run.dir to a folder on shared storage.");
  }
}

std::uint64_t slice_bytes(const std::vector<FileEntry>& entries) {
  std::uint64_t bytes = 0;
  for (const FileEntry& entry : entries) {
    if (entry.file_class == FileClass::kSlices) bytes += entry.size - entry.header_bytes;
  }
  return bytes;
}

}  // namespace

struct CheckpointWriter::State {
  // `of` is null for a single writer.
  State(FileSystem& file_system, CheckpointWriterOptions given, Log& given_log, SaveGroup* of)
      : files(file_system),
        options(std::move(given)),
        log(given_log),
        own_group(of == nullptr ? make_single_save_group() : nullptr),
        group(of == nullptr ? *own_group : *of) {}

  void open_folder();
  bool first() const { return group.rank() == 0; }
  Path path_of(std::int64_t step) const { return options.folder / checkpoint_name(step); }
  std::unique_ptr<SaveJob> make_job(CheckpointRequest request);
  void refuse(std::int64_t step, const std::exception_ptr& cause);

  // The background thread.
  void save(SaveJob& job);
  std::uint64_t write_as_first(SaveJob& job);  // bytes of all slices, also the next one
  std::uint64_t write_as_other(SaveJob& job);
  WriterReport write_part(SaveJob& job, const SaveMeeting& meeting, const Path& folder,
                          StagedFolder* staged);
  std::uint64_t show(const SaveJob& job, StagedFolder& staged,
                     const std::vector<WriterReport>& reports);
  void tidy(std::int64_t step);  // best.json and retention, once `step` is durable
  void keep_error(std::exception_ptr error);
  void wait();

  FileSystem& files;
  const CheckpointWriterOptions options;
  Log& log;
  const std::unique_ptr<SaveGroup> own_group;  // of a single writer
  SaveGroup& group;
  std::unique_ptr<FileLock> folder_lock;
  std::int64_t saves = 0;               // begun; the same on every writer
  std::atomic<bool> abandoned = false;  // the owner does not want the save in flight any more

  std::unique_ptr<SaveJob>
      job;  // of the training thread; the background thread uses it between start() and wait()
  std::thread thread;

  std::mutex folder_mutex;  // held while best.json or the set of visible checkpoints changes
  std::set<std::int64_t> protect;

  mutable std::mutex mutex;  // guards what follows; never held while files are written
  bool running = false;
  bool durable = false;             // the running save has its name; only tidying is left
  std::optional<double> best_loss;  // of the running save
  std::vector<FinishedCheckpoint> finished;
  std::exception_ptr error;
};

void CheckpointWriter::State::keep_error(std::exception_ptr failure) {
  const std::lock_guard lock(mutex);
  if (error == nullptr) error = std::move(failure);  // later ones mostly follow from the first
}

std::unique_ptr<SaveJob> CheckpointWriter::State::make_job(CheckpointRequest request) {
  const std::int64_t step = request.step;
  ++saves;
  try {
    return make_save_job(std::move(request), options.copy_limit_bytes,
                         {group.rank(), group.writers()});
  } catch (...) {
    refuse(step, std::current_exception());
    throw;
  }
}

// The others have begun this save, or will: it fails on them too.
void CheckpointWriter::State::refuse(std::int64_t step, const std::exception_ptr& cause) {
  SaveMeeting meeting(group, step, saves);
  if (first()) {
    meeting.open(meeting.failure_of(cause));
  } else {
    meeting.report({{}, meeting.failure_of(cause)});
  }
}

// Never throws: what fails is reported.
WriterReport CheckpointWriter::State::write_part(SaveJob& current, const SaveMeeting& meeting,
                                                 const Path& folder, StagedFolder* staged) {
  WriterReport report;
  try {
    if (staged == nullptr) require_free_space(files, options.folder, current.slice_bytes);
    report.files = write_slice_files(current, files, folder);
    if (staged != nullptr) {
      std::vector<FileEntry> small = write_small_files(current, *staged);
      std::move(small.begin(), small.end(), std::back_inserter(report.files));
    } else {
      files.sync_directory(folder);  // rank 0's flush need not reach names that were made here
    }
  } catch (...) {
    current.streamer->cancel();  // the training thread need not wait for the others to hear of it
    report = {{}, meeting.failure_of(std::current_exception())};
  }
  return report;
}

std::uint64_t CheckpointWriter::State::show(const SaveJob& current, StagedFolder& staged,
                                            const std::vector<WriterReport>& reports) {
  Manifest manifest;
  manifest.step = current.request.step;
  manifest.world_size = options.world_size;
  for (std::size_t rank = 0; rank < reports.size(); ++rank) {
    if (rank > 0) require_seen(files, staged.hidden(), reports[rank], static_cast<int>(rank));
    for (const FileEntry& entry : reports[rank].files) manifest.files.push_back(entry);
  }
  require_cover(manifest.files);
  std::sort(manifest.files.begin(), manifest.files.end(),
            [](const FileEntry& a, const FileEntry& b) { return a.name < b.name; });
  staged.write(std::string(kManifestName), manifest_text(manifest));
  const std::lock_guard lock(folder_mutex);
  staged.commit();
  return slice_bytes(manifest.files);
}

std::uint64_t CheckpointWriter::State::write_as_first(SaveJob& current) {
  SaveMeeting meeting(group, current.request.step, saves);
  std::optional<StagedFolder> staged;
  try {
    require_free_space(files, options.folder, current.slice_bytes);
    staged.emplace(files, path_of(current.request.step));
  } catch (...) {
    const SaveFailure failure = meeting.failure_of(std::current_exception());
    meeting.open(failure);
    throw meeting.error_of(failure);
  }
  std::optional<SaveFailure> failure;
  std::uint64_t bytes = 0;
  try {
    meeting.open({});
    std::vector<WriterReport> reports;
    reports.push_back(write_part(current, meeting, staged->hidden(), &*staged));
    // Also where this rank's part has failed: nobody may still write when the folder goes.
    for (WriterReport& report : meeting.hear_reports()) reports.push_back(std::move(report));
    failure = first_failure(reports);
    if (!failure) bytes = show(current, *staged, reports);
  } catch (...) {
    failure = meeting.failure_of(std::current_exception());
  }
  if (failure) staged.reset();
  meeting.close(failure, bytes);
  if (failure) throw meeting.error_of(*failure);
  return bytes;
}

std::uint64_t CheckpointWriter::State::write_as_other(SaveJob& current) {
  SaveMeeting meeting(group, current.request.step, saves);
  meeting.hear_open();
  const Path folder = hidden_path(path_of(current.request.step), kPartialSuffix);
  const WriterReport report = write_part(current, meeting, folder, nullptr);
  meeting.report(report);
  // Who has given up itself need not hear what the others make of it.
  if (report.failure && abandoned) throw meeting.error_of(*report.failure);
  return meeting.hear_close();
}

void CheckpointWriter::State::tidy(std::int64_t step) {
  std::vector<Path> hidden;
  {
    // From here on mark_best() writes best.json itself, but only after us.
    const std::lock_guard folder(folder_mutex);
    std::optional<double> loss;
    {
      const std::lock_guard lock(mutex);
      durable = true;
      loss = best_loss;
    }
    if (loss) record_best(files, options.folder, step, *loss);
    hidden = hide_old_checkpoints(files, options.folder, step, {options.keep, protect}, log);
  }
  remove_hidden(files, hidden, log);
}

void CheckpointWriter::State::save(SaveJob& current) {
  try {
    FinishedCheckpoint result;
    result.bytes = first() ? write_as_first(current) : write_as_other(current);
    result.step = current.request.step;
    result.path = path_of(result.step);
    result.seconds = std::chrono::duration<double>(Clock::now() - current.begun).count();
    {
      const std::lock_guard lock(mutex);
      finished.push_back(result);
    }
    if (first()) tidy(result.step);
  } catch (...) {
    current.streamer->cancel();  // nobody may wait for a save that has ended
    keep_error(std::current_exception());
  }
  const std::lock_guard lock(mutex);
  running = false;
}

void CheckpointWriter::State::wait() {
  if (thread.joinable()) thread.join();
  job.reset();
}

void CheckpointWriter::State::open_folder() {
  if (group.writers() > options.world_size)
    throw Error(ErrorKind::kInternal, "more ranks write a checkpoint than the run has");
  if (!first()) return;
  create_durably(files, options.folder);
  folder_lock = files.try_lock(options.folder / ".lock");
  if (folder_lock == nullptr) {
    throw Error(ErrorKind::kIo, "another process is saving checkpoints into this folder",
                options.folder.string(), "Wait for it or stop it, or choose another run.dir.");
  }
  clear_leftovers(files, options.folder, log);
}

CheckpointWriter::CheckpointWriter(FileSystem& files, CheckpointWriterOptions options, Log& log,
                                   SaveGroup& group)
    : state_(std::make_unique<State>(files, std::move(options), log, &group)) {
  state_->open_folder();
}

CheckpointWriter::CheckpointWriter(FileSystem& files, CheckpointWriterOptions options, Log& log)
    : state_(std::make_unique<State>(files, std::move(options), log, nullptr)) {
  state_->open_folder();
}

CheckpointWriter::~CheckpointWriter() {
  state_->abandoned = true;
  if (state_->job != nullptr) state_->job->streamer->cancel();
  state_->wait();
}

void CheckpointWriter::start(CheckpointRequest request) {
  state_->wait();
  auto job = state_->make_job(std::move(request));
  {
    const std::lock_guard lock(state_->mutex);
    state_->running = true;
    state_->durable = false;
    state_->best_loss = job->request.best_loss;
  }
  state_->job = std::move(job);
  try {
    state_->thread = std::thread([state = state_.get()] { state->save(*state->job); });
  } catch (const std::system_error& error) {
    const Error failure(
        ErrorKind::kResource,
        std::string("cannot start the thread that writes checkpoints: ") + error.what());
    state_->refuse(state_->job->request.step, std::make_exception_ptr(failure));
    state_->job.reset();
    const std::lock_guard lock(state_->mutex);
    state_->running = false;
    throw failure;
  }
}

void CheckpointWriter::before_update(int region) {
  if (state_->job != nullptr) state_->job->streamer->before_update(region);
}

std::vector<FinishedCheckpoint> CheckpointWriter::poll() {
  const std::lock_guard lock(state_->mutex);
  if (state_->error != nullptr) std::rethrow_exception(std::exchange(state_->error, nullptr));
  return std::exchange(state_->finished, {});
}

std::vector<FinishedCheckpoint> CheckpointWriter::finish() {
  state_->wait();
  return poll();
}

bool CheckpointWriter::in_flight() const {
  const std::lock_guard lock(state_->mutex);
  return state_->running;
}

void CheckpointWriter::mark_best(std::int64_t step, double loss) {
  if (!state_->first()) return;
  {
    const std::lock_guard lock(state_->mutex);
    if (state_->running && !state_->durable && state_->job->request.step == step) {
      state_->best_loss = loss;
      return;
    }
  }
  const std::vector<CheckpointEntry> entries =
      list_checkpoints(state_->files, state_->options.folder);
  if (std::none_of(entries.begin(), entries.end(),
                   [&](const auto& entry) { return entry.step == step; })) {
    throw Error(
        ErrorKind::kIo,
        "cannot record " + checkpoint_name(step) + " as the best: there is no such checkpoint",
        state_->options.folder.string());
  }
  const std::lock_guard lock(state_->folder_mutex);
  record_best(state_->files, state_->options.folder, step, loss);
}

void CheckpointWriter::protect(std::vector<std::int64_t> steps) {
  const std::lock_guard lock(state_->folder_mutex);
  state_->protect = std::set<std::int64_t>(steps.begin(), steps.end());
}

void require_free_space(FileSystem& files, const Path& folder, std::uint64_t bytes) {
  const std::uint64_t free = files.free_bytes(folder);
  if (free >= bytes) return;
  throw Error(ErrorKind::kIo,
              "a checkpoint needs " + std::to_string(bytes) + " bytes, but the disk has only " +
                  std::to_string(free) + " free",
              folder.string(), "Free space there, or choose another run.dir.");
}

}  // namespace tessera
