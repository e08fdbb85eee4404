// `tessera generate`: a request in, continuations on stdout. Owns: prompts to ids, the layout of
// the output. Not: the loop over tokens (inference/generator.h), the command line (cli/).
#pragma once

#include "train/engine_api.h"

namespace tessera {

// Prints to stdout: with `json` one object a continuation, {"ids", "text", "finish_reason"}, with
// "prompt" and "sample" (from 0) where there are several; else prompt and continuation as text, or
// ids where the model has no tokenizer. Streams to a terminal when there is a single continuation.
// stderr gets what was loaded and the speed. Returns 0; throws as load_model() and generate() do.
int run_generate(const GenerateRequest& request);

}  // namespace tessera
