// The door between the thin program (no torch) and libtessera_engine.so. Owns: requests as plain
// values. Includes nothing of torch, so that cli/ can fill a request before the engine is loaded.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file_system.h"
#include "base/log.h"
#include "base/rank_place.h"
#include "config/config.h"

namespace tessera {

struct TrainRequest {
  Config
      config;  // resolved and validated; paths in it are absolute or relative to the working folder
  std::string config_yaml;   // the resolved config as `--cfg` prints it; saved with the run
  std::string command_line;  // as the user typed it, for the closing hints
  bool json = false;         // JSON lines on stdout
  bool dry_run = false;      // build everything, print the plan, stop
  bool fresh =
      false;  // start over: an existing run in the folder is moved aside, never overwritten
  std::optional<Path> resume_from;  // a checkpoint folder: fork a new run from it
  LogLevel log_level = LogLevel::kNormal;
  RankPlace place;  // among the ranks that were started together
  // For --dry-run: plan for so many ranks; 0: as many as were started.
  int plan_world_size = 0;
  // Ends the process with the error's exit code and its message on stderr. Called on a thread of
  // its own when the job has failed elsewhere and this process hangs in a wait that nobody will
  // end.
  std::function<void(const Error&)> end_process;

  int world_size() const {
    return dry_run && place.alone() && plan_world_size > 0 ? plan_world_size : place.world_size;
  }
  // That share this host's processors and memory; for --nproc N in a dry run, too.
  int ranks_of_host() const { return place.alone() ? world_size() : place.local_world_size; }
};

struct EvaluateRequest {
  std::string model;  // a Hugging Face folder, a checkpoint folder or a run's folder
  std::vector<Path> data;
  std::optional<Path> tokenizer;  // default: the model's own
  DataFormat format = DataFormat::kAuto;
  std::string text_field = "text", text_column;
  std::int64_t stride = 0;      // 0: the block size
  std::int64_t block_size = 0;  // 0: the model's context
  std::int64_t batch_size = 4;
  std::string task = "loss";  // loss | lambada (last-word accuracy of JSON lines)
  bool word_perplexity = false;
  std::string device = "auto", precision = "auto";
  bool json = false;
  LogLevel log_level = LogLevel::kNormal;
};

struct GenerateRequest {
  std::string model;
  std::optional<Path> tokenizer;
  std::vector<std::string> prompts;                   // text; one generation each, as one batch
  std::vector<std::vector<std::int64_t>> prompt_ids;  // instead of prompts
  std::int64_t max_new_tokens = 0;  // 0: 128, or fewer where the context has no more room
  double temperature = 1.0;         // 0: greedy
  std::int64_t top_k = 0;           // 0: off
  double top_p = 1.0, min_p = 0.0, repetition_penalty = 1.0;
  std::uint64_t seed = 0;
  std::vector<std::string> stop;
  std::int64_t samples = 1;  // for each prompt
  bool sliding = false;      // past the context: drop the oldest tokens instead of an error
  bool stream = true;        // to a terminal, when one sample is asked for
  bool ignore_eos = false;
  bool no_cache = false;  // recompute everything at each token; for comparison
  std::string device = "auto", precision = "auto";
  bool json = false;
  LogLevel log_level = LogLevel::kNormal;
};

struct PlanRequest {
  Config config;  // resolved and validated
  std::int64_t world_size = 1;
  std::int64_t ranks_per_node = 0;  // 0: the config's, else all on one node
  std::string fit;                // batch_size | block_size: the largest that fits; empty: as given
  std::int64_t memory_bytes = 0;  // of a rank's device, for `fit`; 0: this machine's memory
  bool schedule = false;          // print the instructions of a step, too
  std::optional<Path> svg;        // draw a step
  // Nominal rates of the drawing: operations and bytes a second of one rank.
  double flops = 0, inside_bytes = 0, across_bytes = 0;
  bool json = false;
  LogLevel log_level = LogLevel::kNormal;
};

// What the engine says of itself to doctor.
struct EngineFacts {
  std::string torch_version, torch_library, blas, cpu_capability, default_precision,
      precision_reason;
  int threads = 0;
  std::vector<std::string> devices;
  double gemm_gflops_f32 = 0,
         gemm_gflops_bf16 = 0;  // measured now on a 1024x1024x1024 product; 0: not measured
};

// Functions return the process's exit code (0, or 130/143 after a saved stop) and throw
// tessera::Error.
struct EngineApi {
  int (*train)(const TrainRequest&);
  int (*evaluate)(const EvaluateRequest&);
  int (*generate)(const GenerateRequest&);
  int (*plan)(const PlanRequest&);
  EngineFacts (*facts)(bool measure);
};

}  // namespace tessera

// The only symbol that the engine library exports.
extern "C" __attribute__((visibility("default"))) const tessera::EngineApi* tessera_engine();
