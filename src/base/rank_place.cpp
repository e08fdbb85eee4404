#include "base/rank_place.h"

#include <algorithm>
#include <charconv>
#include <climits>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "base/error.h"
#include "base/hash.h"
#include "base/node_list.h"

namespace tessera {
namespace {

// Where a launcher names no port, one is derived from the job's identity: below the range from
// which systems give ports to clients (32768 and above), above what services use.
constexpr std::uint64_t kFirstPort = 20000, kPorts = 12768;

class Variables {
 public:
  explicit Variables(const Environment& environment) : environment_(environment) {}

  // Nothing also where it is empty: scripts unset variables so.
  std::optional<std::string> text(std::string_view name) const {
    std::optional<std::string> value = environment_(name);
    if (value && value->empty()) value.reset();
    return value;
  }
  bool has(std::string_view name) const { return text(name).has_value(); }

  std::optional<std::int64_t> number(std::string_view name, std::int64_t least,
                                     std::int64_t most) const {
    const std::optional<std::string> value = text(name);
    if (!value) return std::nullopt;
    std::int64_t result = 0;
    const char* end = value->data() + value->size();
    const auto [rest, error] = std::from_chars(value->data(), end, result);
    if (error != std::errc() || rest != end) fail(name, "'" + *value + "' is not a number");
    if (result < least || result > most)
      fail(name, *value + " is not from " + std::to_string(least) + " to " + std::to_string(most));
    return result;
  }

  // The first of `names` that is set; `otherwise` if none is.
  int number_of(std::initializer_list<std::string_view> names, int least, int most,
                int otherwise) const {
    for (const std::string_view name : names)
      if (const auto value = number(name, least, most)) return static_cast<int>(*value);
    return otherwise;
  }

  int required(std::initializer_list<std::string_view> names, int least, int most,
               std::string_view beside) const {
    for (const std::string_view name : names)
      if (const auto value = number(name, least, most)) return static_cast<int>(*value);
    fail(*names.begin(), "it is not set, and " + std::string(beside) + " is");
  }

  [[noreturn]] static void fail(std::string_view name, const std::string& why) {
    throw Error(ErrorKind::kConfig,
                "the place of this process among the ranks cannot be told: " + why,
                "environment variable " + std::string(name),
                "The program that starts the ranks sets it: start by `tessera launch`, torchrun, "
                "srun or mpirun, or unset the variable to run one process.");
  }

 private:
  const Environment& environment_;
};

[[noreturn]] void fail_store(const std::string& why, const std::string& remedy) {
  throw Error(ErrorKind::kConfig, "the address of the job's store cannot be told: " + why,
              "environment variables MASTER_ADDR and MASTER_PORT", remedy);
}

int derived_port(const std::string& identity) {
  return static_cast<int>(kFirstPort + hash64(identity) % kPorts);
}

bool is_this_host(const std::string& host) {
  return host == "localhost" || host == "::1" || host.rfind("127.", 0) == 0;
}

// What every launcher's ranks may carry.
void read_common(const Variables& variables, RankPlace& place) {
  place.secret = variables.text("TESSERA_JOB_SECRET").value_or("");
  place.error_file = variables.text("TORCHELASTIC_ERROR_FILE").value_or("");
  place.store_host = variables.text("MASTER_ADDR").value_or("");
  place.store_port = variables.number_of({"MASTER_PORT"}, 1, 65535, 0);
}

// Slurm also sets its variables where there is one process and not a rank of a step:
// - in an sbatch script (SLURM_PROCID 0 and SLURM_NTASKS of the allocation, no SLURM_STEP_ID),
// - in salloc's interactive step (the reserved step 4294967290, one task); its batch, external and
//   pending steps have the numbers above that.
// And mpirun starts its daemons by srun, one on each host: the ranks below them carry the daemons'
// Slurm variables, and Open MPI's own are the true ones.
bool in_slurm_step(const Variables& variables) {
  constexpr std::int64_t kFirstReservedStep = 0xfffffffa;
  if (!variables.has("SLURM_PROCID") || !variables.has("SLURM_STEP_NODELIST")) return false;
  if (!variables.has("SLURM_STEP_NUM_TASKS") && !variables.has("SLURM_NTASKS")) return false;
  const auto step = variables.number("SLURM_STEP_ID", INT64_MIN, INT64_MAX);
  if (!step || *step < 0 || *step >= kFirstReservedStep) return false;
  if (variables.has("OMPI_COMM_WORLD_RANK") && variables.has("OMPI_COMM_WORLD_SIZE")) return false;
  // MPICH's mpiexec does as mpirun; srun's own PMI gives the step's size.
  const auto pmi_size = variables.number("PMI_SIZE", 1, INT_MAX);
  return !(pmi_size && variables.has("PMI_RANK") &&
           *pmi_size !=
               variables.number_of({"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"}, 1, INT_MAX, 1));
}

void place_slurm_store(const Variables& variables, RankPlace& place) {
  if (place.store_host.empty())
    place.store_host = parse_node_list(*variables.text("SLURM_STEP_NODELIST")).front();
  if (place.store_port != 0) return;
  // Neighbouring steps and jobs on one head node get different ports.
  const auto job = variables.number("SLURM_JOB_ID", 0, UINT32_MAX);
  if (!job)
    fail_store("neither MASTER_PORT nor SLURM_JOB_ID is set",
               "Set MASTER_PORT in the sbatch script to a port that is free on the first node.");
  const auto step = static_cast<std::uint64_t>(*variables.number("SLURM_STEP_ID", 0, UINT32_MAX));
  place.store_port =
      static_cast<int>(kFirstPort + (97 * static_cast<std::uint64_t>(*job) + step) % kPorts);
}

RankPlace from_slurm(const Variables& variables) {
  RankPlace place;
  place.launched_by = LaunchedBy::kSlurm;
  read_common(variables, place);
  // The step's own variables: `srun --preserve-env` leaves the others as those of the allocation.
  place.world_size =
      variables.required({"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"}, 1, INT_MAX, "SLURM_PROCID");
  place.rank = variables.required({"SLURM_PROCID"}, 0, place.world_size - 1, "SLURM_STEP_ID");
  place.nodes = variables.number_of({"SLURM_STEP_NUM_NODES", "SLURM_NNODES"}, 1, INT_MAX, 1);
  place.node = variables.number_of({"SLURM_NODEID"}, 0, place.nodes - 1, 0);
  const char* tasks = variables.has("SLURM_STEP_TASKS_PER_NODE") ? "SLURM_STEP_TASKS_PER_NODE"
                                                                 : "SLURM_TASKS_PER_NODE";
  if (const auto text = variables.text(tasks)) {
    const std::vector<int> counts = parse_tasks_per_node(*text);
    if (static_cast<std::size_t>(place.node) >= counts.size())
      Variables::fail(tasks, "'" + *text + "' names " + std::to_string(counts.size()) +
                                 " nodes, and this is node " + std::to_string(place.node));
    place.local_world_size = counts[place.node];
  } else if (place.nodes == 1) {
    place.local_world_size = place.world_size;
  } else if (place.nodes != place.world_size) {
    Variables::fail(tasks, "it is not set, and SLURM_PROCID is");
  }
  if (place.local_world_size < 1 || place.local_world_size > place.world_size)
    Variables::fail(tasks, std::to_string(place.local_world_size) + " tasks on this node of " +
                               std::to_string(place.world_size) + " in the step");
  place.local_rank =
      variables.required({"SLURM_LOCALID"}, 0, place.local_world_size - 1, "SLURM_PROCID");
  place.restart = variables.number_of({"SLURM_RESTART_COUNT"}, 0, INT_MAX, 0);
  place.job_id =
      variables.text("SLURM_JOB_ID").value_or("slurm") + "." + *variables.text("SLURM_STEP_ID");
  if (!place.alone()) place_slurm_store(variables, place);
  return place;
}

// The part of MPI's ranks that Open MPI and PMI share. `identity` is empty where the launcher gives
// the job no name.
void finish_mpi(RankPlace& place, const std::string& identity, const std::string& pass_on) {
  // Neither says which ranks share a host: taken as they come when a host is filled before the
  // next.
  place.nodes = (place.world_size + place.local_world_size - 1) / place.local_world_size;
  place.node = place.rank / place.local_world_size;
  place.job_id = identity;
  if (place.alone()) return;
  if (place.store_host.empty()) {
    if (place.local_world_size != place.world_size)
      fail_store("the ranks are on several hosts, and MASTER_ADDR is not set",
                 "Pass rank 0's host on to all ranks: " + pass_on);
    place.store_host = "127.0.0.1";
  }
  if (place.store_port == 0) {
    if (identity.empty())
      fail_store("MASTER_PORT is not set, and the launcher names no job to derive it from",
                 "Pass a free port of rank 0's host on to all ranks: " + pass_on);
    place.store_port = derived_port(identity);
  }
  if (place.job_id.empty())
    place.job_id = place.store_host + "-" + std::to_string(place.store_port);
}

RankPlace from_open_mpi(const Variables& variables) {
  RankPlace place;
  place.launched_by = LaunchedBy::kOpenMpi;
  read_common(variables, place);
  place.world_size =
      variables.required({"OMPI_COMM_WORLD_SIZE"}, 1, INT_MAX, "OMPI_COMM_WORLD_RANK");
  place.rank =
      variables.required({"OMPI_COMM_WORLD_RANK"}, 0, place.world_size - 1, "OMPI_COMM_WORLD_SIZE");
  place.local_world_size = variables.required({"OMPI_COMM_WORLD_LOCAL_SIZE"}, 1, place.world_size,
                                              "OMPI_COMM_WORLD_RANK");
  place.local_rank = variables.required({"OMPI_COMM_WORLD_LOCAL_RANK"}, 0,
                                        place.local_world_size - 1, "OMPI_COMM_WORLD_RANK");
  // "1327038465" in Open MPI 4, "prterun-host-123@1" in 5. The other is the address of mpirun:
  // "1327038464.0;tcp://…".
  std::string identity = variables.text("PMIX_NAMESPACE").value_or("");
  if (identity.empty()) {
    identity = variables.text("OMPI_MCA_orte_hnp_uri").value_or("");
    identity.resize(std::min(identity.size(), identity.find(';')));
  }
  finish_mpi(place, identity,
             "mpirun -x MASTER_ADDR=HOST_OF_RANK_0 -x MASTER_PORT=29500 … tessera …");
  return place;
}

RankPlace from_pmi(const Variables& variables) {
  RankPlace place;
  place.launched_by = LaunchedBy::kPmi;
  read_common(variables, place);
  place.world_size = variables.required({"PMI_SIZE"}, 1, INT_MAX, "PMI_RANK");
  place.rank = variables.required({"PMI_RANK"}, 0, place.world_size - 1, "PMI_SIZE");
  // MPICH's and Intel's names, then Cray's.
  place.local_world_size =
      variables.number_of({"MPI_LOCALNRANKS", "PMI_LOCAL_SIZE"}, 1, place.world_size,
                          is_this_host(place.store_host) ? place.world_size : 1);
  place.local_rank =
      variables.number_of({"MPI_LOCALRANKID", "PMI_LOCAL_RANK"}, 0, place.local_world_size - 1,
                          place.rank % place.local_world_size);
  finish_mpi(place, variables.text("PMI_JOBID").value_or(""),
             "mpiexec -genv MASTER_ADDR HOST_OF_RANK_0 -genv MASTER_PORT 29500 … tessera …");
  return place;
}

// `below`: what another launcher's variables say, as where a script under srun or mpirun sets RANK
// and WORLD_SIZE from them.
RankPlace from_torchrun(const Variables& variables, const RankPlace& below) {
  RankPlace place;
  place.launched_by =
      variables.has("TESSERA_LAUNCHER") ? LaunchedBy::kTessera : LaunchedBy::kTorchrun;
  read_common(variables, place);
  place.world_size = variables.required({"WORLD_SIZE"}, 1, INT_MAX, "RANK");
  place.rank = variables.required({"RANK"}, 0, place.world_size - 1, "WORLD_SIZE");
  const bool is_known = below.rank == place.rank && below.world_size == place.world_size;
  if (is_known) {
    place.local_rank = below.local_rank;
    place.local_world_size = below.local_world_size;
  } else if (is_this_host(place.store_host)) {
    place.local_world_size = place.world_size;  // ranks that meet on this host are all on it
    place.local_rank = place.rank;
  }
  // Where only LOCAL_RANK is told, there are at least so many.
  const int told = variables.number_of({"LOCAL_RANK"}, 0, place.world_size - 1, place.local_rank);
  place.local_world_size = variables.number_of({"LOCAL_WORLD_SIZE"}, 1, place.world_size,
                                               std::max(place.local_world_size, told + 1));
  place.local_rank = variables.number_of({"LOCAL_RANK"}, 0, place.local_world_size - 1,
                                         std::min(told, place.local_world_size - 1));
  const int filled = place.rank / place.local_world_size;  // hosts before this one
  place.node = variables.number_of({"GROUP_RANK"}, 0, INT_MAX - 1, is_known ? below.node : filled);
  const int hosts = (place.world_size + place.local_world_size - 1) / place.local_world_size;
  place.nodes = variables.number_of({"GROUP_WORLD_SIZE"}, place.node + 1, INT_MAX,
                                    std::max(is_known ? below.nodes : hosts, place.node + 1));
  place.restart = variables.number_of({"TORCHELASTIC_RESTART_COUNT"}, 0, INT_MAX, 0);
  place.max_restarts = variables.number_of({"TORCHELASTIC_MAX_RESTARTS"}, 0, INT_MAX, 0);
  place.store_is_hosted = variables.text("TORCHELASTIC_USE_AGENT_STORE") == "True";
  if (place.world_size > 1 && (place.store_host.empty() || place.store_port == 0))
    fail_store(
        std::string(place.store_host.empty() ? "MASTER_ADDR" : "MASTER_PORT") +
            " is not set, and RANK and WORLD_SIZE are",
        "Set MASTER_ADDR to rank 0's host and MASTER_PORT to a free port of it, the same for "
        "all ranks; or start by `tessera launch` or torchrun, which set them.");
  place.job_id = variables.text("TORCHELASTIC_RUN_ID").value_or("none");
  // torchrun's word for "not named": the store's address is all that tells such jobs apart.
  if (place.job_id == "none" && !place.store_host.empty())
    place.job_id = place.store_host + "-" + std::to_string(place.store_port);
  return place;
}

RankPlace from_cluster(const Variables& variables) {
  if (in_slurm_step(variables)) return from_slurm(variables);
  if (variables.has("OMPI_COMM_WORLD_RANK") && variables.has("OMPI_COMM_WORLD_SIZE"))
    return from_open_mpi(variables);
  if (variables.has("PMI_RANK") && variables.has("PMI_SIZE")) return from_pmi(variables);
  return RankPlace();
}

}  // namespace

std::string_view to_string(LaunchedBy launcher) {
  switch (launcher) {
    case LaunchedBy::kNobody: return "nobody";
    case LaunchedBy::kTessera: return "tessera launch";
    case LaunchedBy::kTorchrun: return "torchrun";
    case LaunchedBy::kSlurm: return "Slurm";
    case LaunchedBy::kOpenMpi: return "Open MPI";
    case LaunchedBy::kPmi: return "PMI";
  }
  return "nobody";
}

Environment process_environment() {
  return [](std::string_view name) -> std::optional<std::string> {
    const char* value = std::getenv(std::string(name).c_str());
    if (value == nullptr) return std::nullopt;
    return value;
  };
}

RankPlace rank_place(const Environment& environment) {
  const Variables variables(environment);
  if (!variables.has("RANK")) return from_cluster(variables);
  // An agent's ranks need nothing of the launcher that started the agent, right or wrong.
  const bool complete = variables.has("LOCAL_RANK") && variables.has("LOCAL_WORLD_SIZE");
  return from_torchrun(variables, complete ? RankPlace() : from_cluster(variables));
}

}  // namespace tessera
