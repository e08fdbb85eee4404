// What the writers of one save tell each other. Owns: the texts, their keys, and the choice of the
// failure to report. Not: files, nor how texts travel (save_group.h).
//
// Rank 0 opens (the folder is there), every other writer reports (its files are durable, or why
// not), rank 0 closes (the checkpoint has its name, or why not). Each of the three is told also
// where it failed, so that nobody waits in vain.
#pragma once

#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "checkpoint/manifest.h"
#include "checkpoint/save_group.h"

namespace tessera {

// Why a save failed, and on which rank.
struct SaveFailure {
  int rank = 0;
  std::string host;
  std::int64_t time_ns = 0;  // since the epoch, by that host's clock
  ErrorKind kind = ErrorKind::kInternal;
  std::string reason, where, remedy;
};

// What one writer has done.
struct WriterReport {
  std::vector<FileEntry> files;
  std::optional<SaveFailure> failure;
};

class SaveMeeting {
 public:
  // `count`: of the saves that all writers began together, so that a step saved again has keys of
  // its own.
  SaveMeeting(SaveGroup& group, std::int64_t step, std::int64_t count);

  bool first() const { return group_.rank() == 0; }

  // Rank 0.
  void open(const std::optional<SaveFailure>& failure);
  std::vector<WriterReport> hear_reports();  // of all others, by rank; waits
  void close(const std::optional<SaveFailure>& failure, std::uint64_t bytes);

  // The others. A failure that is heard is thrown.
  void hear_open();
  void report(const WriterReport& report);
  std::uint64_t hear_close();  // bytes of the whole checkpoint's slices

  // Of this rank, now.
  SaveFailure failure_of(const std::exception_ptr& error) const;
  // The same on every rank: it names the rank that failed, unless there is only one.
  Error error_of(const SaveFailure& failure) const;

 private:
  std::string key(std::string_view what) const;

  SaveGroup& group_;
  const std::string prefix_;
};

// The one that came first, by the clocks of the hosts; the lowest rank's where they agree.
std::optional<SaveFailure> first_failure(const std::vector<WriterReport>& reports);

}  // namespace tessera
