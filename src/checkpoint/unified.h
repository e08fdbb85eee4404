// A checkpoint of any number of ranks as one model that other programs read. Owns: which of the
// checkpoint's files go there. Not: the container (formats/safetensors.h).
#pragma once

#include <cstdint>
#include <optional>

#include "base/file_system.h"
#include "checkpoint/reader.h"

namespace tessera {

// Makes `folder` a Hugging Face model: model.safetensors with the tensors of the checkpoint's
// "model" files by name, config.json, the tokenizer's files beside them, and tessera_model.json,
// which records the checkpoint's step. The same state gives the same bytes, whatever the number of
// ranks that saved it. The folder becomes visible whole or not at all; tensors pass through a
// buffer of a few MiB. A folder that is there is replaced, if require_replaceable_model() lets it.
// Error{kCorrupt} where the checkpoint holds no model. One process at a time may write a folder.
void write_unified_model(const CheckpointReader& checkpoint, FileSystem& files, const Path& folder);

// That write_unified_model would not delete what is not a model: Error{kIo} names what else lies in
// `folder`, and how to train all the same.
void require_replaceable_model(FileSystem& files, const Path& folder);

// Removes a model that write_unified_model made in `folder`, unless it is that of step `keep`. What
// else lies there stays, and so does a model without the record of a step. Whether it removed one.
// A process that dies meanwhile leaves no config.json, and the next call goes on. Error{kIo}.
bool remove_unified_model(FileSystem& files, const Path& folder,
                          const std::optional<std::int64_t>& keep);

}  // namespace tessera
