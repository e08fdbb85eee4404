// Going on where a run stopped. Owns: which checkpoint, whether the config still fits it, putting
// its state back.
#pragma once

#include <optional>

#include "checkpoint/catalog.h"
#include "train/session.h"

namespace tessera {

// The checkpoint that `request` asks to go on from: --resume-from, or the newest whole one of the
// run's folder; nothing for a fresh run. Error{kCorrupt} where there are checkpoints but none is
// whole, Error{kUsage} where --resume-from would mix two runs.
std::optional<CheckpointReader> find_resume_point(const TrainRequest& request, FileSystem& files,
                                                  Log& log);

// What the checkpoint's run was started with.
RecordedSizes recorded_sizes(const CheckpointReader& checkpoint);

// Compares the config that the checkpoint was written under with the present one: refuses
// (Error{kConfig}, all keys with old and new value) what would make it another run, says what will
// differ.
void check_config(const CheckpointReader& checkpoint, const Config& now, Log& log);

// Weights, optimizer state and trainer state. Error{kConfig} where tokenizer or data are not those
// of the run.
void restore_session(const CheckpointReader& checkpoint, Session& session);

}  // namespace tessera
