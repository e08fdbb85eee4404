// A checkpoint of any number of ranks as one model that other programs read. Owns: which of the
// checkpoint's files go there. Not: the container (formats/safetensors.h).
#pragma once

#include "base/file_system.h"
#include "checkpoint/reader.h"

namespace tessera {

// Makes `folder` a Hugging Face model: model.safetensors with the tensors of the checkpoint's
// "model" files by name, config.json, and the tokenizer's files beside them. The same state gives
// the same bytes, whatever the number of ranks that saved it. The folder becomes visible whole or
// not at all; tensors pass through a buffer of a few MiB. A folder that is there is replaced if all
// that it holds is such a model, else left as it is: Error{kIo} that names what else lies there.
// Error{kCorrupt} where the checkpoint holds no model. One process at a time may write a folder.
void write_unified_model(const CheckpointReader& checkpoint, FileSystem& files, const Path& folder);

}  // namespace tessera
