// Saves the state of training while training goes on. Owns: the background thread, the copies it
// must make, and the order of events that makes a checkpoint visible whole or not at all. Not: what
// the state means, nor reading it back.
//
// A checkpoint's state changes only where an optimizer step rewrites it. So nothing is copied:
// start() returns at once, the thread streams region after region while the next forward and
// backward run, and before_update(region) makes the optimizer wait (or copies a little) where it
// would overtake the writer.
//
// Several ranks write one checkpoint together: each is a writer of a SaveGroup, and its thread
// streams its own slices into files of its own. Rank 0 makes the folder, checks that the slices of
// all cover every tensor, writes the small files, and shows the checkpoint once all is durable.
// Writing threads wait for each other, training threads never do. One writer is a group of one.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/file_system.h"
#include "base/log.h"
#include "checkpoint/save_group.h"
#include "checkpoint/save_request.h"

namespace tessera {

struct CheckpointWriterOptions {
  Path folder;   // DIR/checkpoints; made when absent
  int keep = 3;  // newest checkpoints to keep, beside the best one; 0: all
  // before_update copies what is not yet written instead of waiting, up to so many bytes a save.
  std::uint64_t copy_limit_bytes = std::uint64_t{64} << 20;
  int world_size = 1;  // ranks of the run, for the record; not less than the writers
};

struct FinishedCheckpoint {
  std::int64_t step = 0;
  Path path;
  double seconds = 0;       // from start() until durable
  std::uint64_t bytes = 0;  // of all slices, of all writers
};

// All functions belong to one thread, the training thread. One group a folder: a second one that
// writes there is refused by rank 0's constructor with Error{kIo}. `files`, `log` and `group` must
// outlive the writer.
//
// In a group every writer calls start() for the same steps in the same order, with the same keep
// and world size. Where a writer fails, the save fails on all of them with the same Error, which
// names the rank and its cause. A job that fails meanwhile (SaveGroup::hear throws) fails the save.
class CheckpointWriter {
 public:
  // Rank 0 removes what a dead process left half-written, and finishes a replacement that it left
  // undone. The other writers touch nothing.
  CheckpointWriter(FileSystem& files, CheckpointWriterOptions options, Log& log, SaveGroup& group);
  CheckpointWriter(FileSystem& files, CheckpointWriterOptions options, Log& log);  // a group of one
  // Gives up a save in flight: its folder is removed. Call finish() first to keep it. On rank 0 of
  // a group it waits until the others have ended their part or the job has failed.
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  // Begins a save and returns. Waits first for a save that is still in flight. Error{kInternal} on
  // slices that contradict each other (those of other ranks: later, as a failed save). A checkpoint
  // of the same step is replaced, once the new one is whole.
  void start(CheckpointRequest request);

  // Call just before memory of slices with this region is rewritten (each time; free when no save
  // is in flight). Returns when these bytes are no longer needed: written, copied, or the save has
  // failed.
  void before_update(int region);

  // Checkpoints that have become durable since the last call; never waits. Throws a failed save's
  // Error, once: its partial folder is removed, older checkpoints are untouched, and the writer can
  // be used again.
  std::vector<FinishedCheckpoint> poll();

  // Waits for the save in flight, then as poll().
  std::vector<FinishedCheckpoint> finish();

  bool in_flight() const;

  // Records `step` as the best in best.json: at once if its checkpoint is durable, else as soon as
  // it is. Error{kIo} where there is no such checkpoint. Nothing on ranks other than 0.
  void mark_best(std::int64_t step, double loss);

  // Steps that retention (rank 0's) must not remove, beside the newest and the best; replaces the
  // list given before.
  void protect(std::vector<std::int64_t> steps);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Throws Error{kIo} that names both numbers when `folder`'s device has less than `bytes` free.
void require_free_space(FileSystem& files, const Path& folder, std::uint64_t bytes);

}  // namespace tessera
