// Where this process stands among the ranks of a job, as its launcher says in the environment.
// Owns: reading torchrun's, Slurm's, Open MPI's and PMI's variables into one value. Not: starting
// ranks (launcher/), nor how they talk (store/, parallel/).
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace tessera {

// Who started this process as a rank, in the order in which they are looked for.
enum class LaunchedBy {
  kNobody,    // one process
  kTessera,   // `tessera launch` or --nproc: TESSERA_LAUNCHER is set beside torchrun's variables
  kTorchrun,  // RANK and WORLD_SIZE
  kSlurm,     // SLURM_PROCID and SLURM_NTASKS inside a step (srun); not below mpirun's daemons
  kOpenMpi,   // OMPI_COMM_WORLD_RANK and …_SIZE
  kPmi,       // PMI_RANK and PMI_SIZE
};

std::string_view to_string(LaunchedBy launcher);

struct RankPlace {
  int rank = 0, world_size = 1;
  int local_rank = 0, local_world_size = 1;  // among the ranks of this host
  // MPI's launchers do not say which ranks share a host: there, as if each host were filled before
  // the next.
  int node = 0, nodes = 1;
  LaunchedBy launched_by = LaunchedBy::kNobody;
  // The job's store: its address, and whether somebody else hosts it already (else rank 0 does).
  // MASTER_ADDR and MASTER_PORT where they are set. Else, under Slurm, the first node of the step
  // and port 20000 + (97 · SLURM_JOB_ID + SLURM_STEP_ID) mod 12768; under Open MPI on one host
  // 127.0.0.1 and a port from 20000 to 32767 by the hash of the job's name. May be empty and 0 for
  // a process alone.
  std::string store_host;
  int store_port = 0;
  bool store_is_hosted = false;
  std::string job_id;  // the same on all ranks of a job, another for other jobs; for names and logs
  std::string secret;  // TESSERA_JOB_SECRET: keys of the store lie under it; may be empty
  int restart = 0, max_restarts = 0;
  std::string error_file;  // TORCHELASTIC_ERROR_FILE; empty: nobody reads one

  bool alone() const { return world_size == 1; }
};

// Value of a variable, or nothing: std::getenv, or a map in tests.
using Environment = std::function<std::optional<std::string>(std::string_view name)>;
Environment process_environment();

// Error{kConfig} that names the variable: not a number, rank outside the world, or a store whose
// address cannot be told (it says which variables to set).
RankPlace rank_place(const Environment& environment);

}  // namespace tessera
