// What this machine offers to a run, and what is missing. Owns: collecting, judging and laying out
// the facts. Not: the command line (doctor_command.cpp), how the engine is asked (engine_probe.h).
#pragma once

#include <string>
#include <vector>

#include "base/machine.h"
#include "cli/engine_probe.h"

namespace tessera::cli {

struct Problem {
  std::string what;                // one line
  std::string remedy;              // what to do: mostly a command
  bool prevents_training = false;  // else it is slower or smaller than it could be
};

struct FolderFacts {
  std::string use;  // "working folder", "cache"
  Path path;
  std::uint64_t free_bytes = 0;
  bool writable = false;  // it, or where it would be made
};

struct DoctorReport {
  std::string version;
  Path program;
  MachineFacts machine;
  std::string thread_limit;  // OMP_NUM_THREADS, empty when it is not set
  std::vector<FolderFacts> folders;
  std::vector<Path> engine_candidates;
  Path engine;                // the file; empty: none of the candidates is there
  Path torch_folder;          // where the engine was linked to look for torch; empty: not known
  std::string torch_version;  // of the torch in that folder, without loading it; empty: none there
  EngineProbe probe;
  bool measured = false;
  std::vector<Problem> problems;

  bool training_possible() const;
};

// Everything but the problems. `measure`: also the speed of matrix products (seconds).
DoctorReport collect_report(bool measure);

// The problems that follow from the facts, those that prevent training first. Pure.
std::vector<Problem> find_problems(const DoctorReport& report);

std::string report_text(const DoctorReport& report);  // for people, several lines
std::string report_json(const DoctorReport& report);  // one line without its newline

// The folder of torch's libraries that an engine was linked with, read from the file's run path;
// empty: none. Reads the file as bytes, so it works where the library cannot be loaded. Error{kIo}
// where the file cannot be read.
Path linked_torch_folder(const Path& engine);

}  // namespace tessera::cli
