#include "base/rank_place.h"

#include <gtest/gtest.h>

#include <map>

#include "base/error.h"

namespace tessera {
namespace {

using Values = std::map<std::string, std::string, std::less<>>;

Environment of(Values values) {
  return [values = std::move(values)](std::string_view name) -> std::optional<std::string> {
    const auto found = values.find(name);
    if (found == values.end()) return std::nullopt;
    return found->second;
  };
}

RankPlace place_of(Values base, const Values& changes = {}) {
  for (const auto& [name, value] : changes) base[name] = value;
  return rank_place(of(std::move(base)));
}

// The message, or what is wrong about it.
std::string error_of(Values base, const Values& changes = {}) {
  try {
    place_of(std::move(base), changes);
    return "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    return error.what();
  }
}

#define EXPECT_TELLS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

const Values kTorchrun = {{"RANK", "5"},
                          {"LOCAL_RANK", "1"},
                          {"WORLD_SIZE", "8"},
                          {"LOCAL_WORLD_SIZE", "4"},
                          {"GROUP_RANK", "1"},
                          {"GROUP_WORLD_SIZE", "2"},
                          {"MASTER_ADDR", "head"},
                          {"MASTER_PORT", "29400"},
                          {"TORCHELASTIC_RESTART_COUNT", "2"},
                          {"TORCHELASTIC_MAX_RESTARTS", "3"},
                          {"TORCHELASTIC_RUN_ID", "my-run"},
                          {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                          {"TORCHELASTIC_ERROR_FILE", "/tmp/e.json"}};

// What srun of Slurm 22.05 gives to task 3 of 2 + 1 + 1 tasks inside an allocation of 8 tasks.
const Values kSlurm = {{"SLURM_JOB_ID", "1000"},
                       {"SLURM_JOB_NODELIST", "n[1-4]"},
                       {"SLURM_STEP_ID", "7"},
                       {"SLURM_STEP_NODELIST", "n[2-4]"},
                       {"SLURM_STEP_NUM_NODES", "3"},
                       {"SLURM_STEP_NUM_TASKS", "4"},
                       {"SLURM_STEP_TASKS_PER_NODE", "2,1(x2)"},
                       {"SLURM_NNODES", "3"},
                       {"SLURM_NTASKS", "4"},
                       {"SLURM_TASKS_PER_NODE", "2,1(x2)"},
                       {"SLURM_PROCID", "1"},
                       {"SLURM_LOCALID", "1"},
                       {"SLURM_NODEID", "0"}};

// What mpirun of Open MPI 4.1.4 gives.
const Values kOpenMpi = {
    {"OMPI_COMM_WORLD_SIZE", "2"},
    {"OMPI_COMM_WORLD_RANK", "1"},
    {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
    {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
    {"OMPI_COMM_WORLD_NODE_RANK", "1"},
    {"OMPI_MCA_orte_hnp_uri", "1327038464.0;tcp://192.0.2.2:51091;tcp6://[fd00::2]:53333"},
    {"PMIX_NAMESPACE", "1327038465"}};

TEST(RankPlaceTest, WithoutALauncherThereIsOneProcess) {
  const RankPlace place = place_of({{"WORLD_SIZE", "4"}, {"TESSERA_LAUNCHER", "1"}});
  EXPECT_EQ(place.launched_by, LaunchedBy::kNobody);
  EXPECT_TRUE(place.alone());
  EXPECT_EQ(place.rank, 0);
  EXPECT_EQ(place.nodes, 1);
  EXPECT_FALSE(place.store_is_hosted);
  // An empty variable is not set.
  EXPECT_EQ(place_of(kTorchrun, {{"RANK", ""}}).launched_by, LaunchedBy::kNobody);
}

TEST(RankPlaceTest, Torchrun) {
  const RankPlace place = place_of(kTorchrun);
  EXPECT_EQ(place.launched_by, LaunchedBy::kTorchrun);
  EXPECT_EQ(place.rank, 5);
  EXPECT_EQ(place.world_size, 8);
  EXPECT_EQ(place.local_rank, 1);
  EXPECT_EQ(place.local_world_size, 4);
  EXPECT_EQ(place.node, 1);
  EXPECT_EQ(place.nodes, 2);
  EXPECT_EQ(place.store_host, "head");
  EXPECT_EQ(place.store_port, 29400);
  EXPECT_TRUE(place.store_is_hosted);
  EXPECT_EQ(place.restart, 2);
  EXPECT_EQ(place.max_restarts, 3);
  EXPECT_EQ(place.job_id, "my-run");
  EXPECT_EQ(place.error_file, "/tmp/e.json");
  EXPECT_EQ(place.secret, "");
}

TEST(RankPlaceTest, TesseraLaunch) {
  const RankPlace place =
      place_of(kTorchrun, {{"TESSERA_LAUNCHER", "1"}, {"TESSERA_JOB_SECRET", "s3cret"}});
  EXPECT_EQ(place.launched_by, LaunchedBy::kTessera);
  EXPECT_EQ(place.secret, "s3cret");
}

TEST(RankPlaceTest, RanksStartedByHand) {
  const Values by_hand = {
      {"RANK", "2"}, {"WORLD_SIZE", "3"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "29500"}};
  RankPlace place = place_of(by_hand);
  EXPECT_FALSE(place.store_is_hosted);
  EXPECT_EQ(place.local_rank, 2);
  EXPECT_EQ(place.local_world_size, 3);
  EXPECT_EQ(place.nodes, 1);
  EXPECT_EQ(place.job_id, "127.0.0.1-29500");
  place = place_of(by_hand, {{"MASTER_ADDR", "head"}});  // one on each host
  EXPECT_EQ(place.local_rank, 0);
  EXPECT_EQ(place.local_world_size, 1);
  EXPECT_EQ(place.node, 2);
  EXPECT_EQ(place.nodes, 3);
  // torchrun's own word where no run is named does not tell jobs apart.
  EXPECT_EQ(place_of(by_hand, {{"TORCHELASTIC_RUN_ID", "none"}}).job_id, "127.0.0.1-29500");
}

TEST(RankPlaceTest, ScriptsThatSetRankFromAClustersVariables) {
  const Values script = {
      {"RANK", "1"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "n2"}, {"MASTER_PORT", "29500"}};
  RankPlace place = place_of(kSlurm, script);
  EXPECT_EQ(place.launched_by, LaunchedBy::kTorchrun);
  EXPECT_EQ(place.local_rank, 1);
  EXPECT_EQ(place.local_world_size, 2);
  EXPECT_EQ(place.nodes, 3);
  place = place_of(kSlurm, {{"RANK", "0"}, {"WORLD_SIZE", "1"}});  // not what Slurm counts
  EXPECT_EQ(place.local_world_size, 1);
  // LOCAL_RANK alone: at least so many.
  place = place_of(script, {{"LOCAL_RANK", "1"}});
  EXPECT_EQ(place.local_rank, 1);
  EXPECT_EQ(place.local_world_size, 2);
  // An agent that srun started: its ranks are its own.
  place = place_of(kSlurm, kTorchrun);
  EXPECT_EQ(place.local_world_size, 4);
  EXPECT_EQ(place.node, 1);
}

TEST(RankPlaceTest, TorchrunMistakes) {
  EXPECT_TELLS(error_of(kTorchrun, {{"RANK", "x"}}), "'x' is not a number");
  EXPECT_TELLS(error_of(kTorchrun, {{"RANK", "x"}}), "variable RANK");
  EXPECT_TELLS(error_of(kTorchrun, {{"RANK", "8"}}), "8 is not from 0 to 7");
  EXPECT_TELLS(error_of(kTorchrun, {{"RANK", "-1"}}), "-1 is not from 0 to 7");
  EXPECT_TELLS(error_of(kTorchrun, {{"WORLD_SIZE", "0"}}), "variable WORLD_SIZE");
  EXPECT_TELLS(error_of(kTorchrun, {{"WORLD_SIZE", "8 "}}), "'8 ' is not a number");
  EXPECT_TELLS(error_of(kTorchrun, {{"WORLD_SIZE", ""}}), "it is not set, and RANK is");
  EXPECT_TELLS(error_of(kTorchrun, {{"WORLD_SIZE", "99999999999999999999"}}), "not a number");
  EXPECT_TELLS(error_of(kTorchrun, {{"LOCAL_RANK", "4"}}), "variable LOCAL_RANK");
  EXPECT_TELLS(error_of(kTorchrun, {{"LOCAL_WORLD_SIZE", "9"}}), "variable LOCAL_WORLD_SIZE");
  EXPECT_TELLS(error_of(kTorchrun, {{"GROUP_WORLD_SIZE", "1"}}), "variable GROUP_WORLD_SIZE");
  EXPECT_TELLS(error_of(kTorchrun, {{"MASTER_ADDR", ""}}), "MASTER_ADDR is not set");
  EXPECT_TELLS(error_of(kTorchrun, {{"MASTER_PORT", ""}}), "MASTER_PORT is not set");
  EXPECT_TELLS(error_of(kTorchrun, {{"MASTER_PORT", "65536"}}), "variable MASTER_PORT");
  EXPECT_TELLS(error_of(kTorchrun, {{"MASTER_PORT", "http"}}), "'http' is not a number");
}

TEST(RankPlaceTest, SlurmStep) {
  RankPlace place = place_of(kSlurm);
  EXPECT_EQ(place.launched_by, LaunchedBy::kSlurm);
  EXPECT_EQ(place.rank, 1);
  EXPECT_EQ(place.world_size, 4);
  EXPECT_EQ(place.local_rank, 1);
  EXPECT_EQ(place.local_world_size, 2);
  EXPECT_EQ(place.node, 0);
  EXPECT_EQ(place.nodes, 3);
  EXPECT_EQ(place.store_host, "n2");
  EXPECT_EQ(place.store_port, 20000 + 7631);  // 97 · 1000 + 7 = 7 · 12768 + 7631
  EXPECT_FALSE(place.store_is_hosted);
  EXPECT_EQ(place.job_id, "1000.7");
  EXPECT_EQ(place.restart, 0);
  place = place_of(kSlurm, {{"SLURM_PROCID", "3"},
                            {"SLURM_NODEID", "2"},
                            {"SLURM_LOCALID", "0"},
                            {"SLURM_RESTART_COUNT", "1"}});
  EXPECT_EQ(place.local_world_size, 1);
  EXPECT_EQ(place.node, 2);
  EXPECT_EQ(place.restart, 1);
  EXPECT_EQ(place.store_host, "n2");
  place = place_of(kSlurm, {{"MASTER_ADDR", "10.0.0.1"}, {"MASTER_PORT", "555"}});
  EXPECT_EQ(place.store_host, "10.0.0.1");
  EXPECT_EQ(place.store_port, 555);
}

TEST(RankPlaceTest, SlurmPortsAreBelowTheEphemeralRange) {
  for (const char* job : {"0", "1", "131", "132", "67108864", "4294967295"}) {
    for (const char* step : {"0", "1", "4294967289"}) {
      const int port =
          place_of(kSlurm, {{"SLURM_JOB_ID", job}, {"SLURM_STEP_ID", step}}).store_port;
      EXPECT_GE(port, 20000);
      EXPECT_LT(port, 32768);
    }
  }
  EXPECT_NE(place_of(kSlurm).store_port, place_of(kSlurm, {{"SLURM_STEP_ID", "8"}}).store_port);
  EXPECT_NE(place_of(kSlurm).store_port, place_of(kSlurm, {{"SLURM_JOB_ID", "1001"}}).store_port);
}

TEST(RankPlaceTest, TheStepsOwnVariablesWinOverTheAllocations) {
  const RankPlace place = place_of(
      kSlurm, {{"SLURM_NTASKS", "8"}, {"SLURM_NNODES", "4"}, {"SLURM_TASKS_PER_NODE", "2(x4)"}});
  EXPECT_EQ(place.world_size, 4);
  EXPECT_EQ(place.nodes, 3);
  EXPECT_EQ(place_of(kSlurm, {{"SLURM_STEP_NUM_TASKS", ""}}).world_size, 4);
}

TEST(RankPlaceTest, SlurmOutsideAStepIsOneProcess) {
  // The batch step: its script is task 0 of one, but SLURM_NTASKS is that of the allocation.
  Values batch = {{"SLURM_JOB_ID", "1000"},     {"SLURM_JOB_NODELIST", "n[1-4]"},
                  {"SLURM_NODELIST", "n[1-4]"}, {"SLURM_NNODES", "4"},
                  {"SLURM_NTASKS", "8"},        {"SLURM_TASKS_PER_NODE", "2(x4)"},
                  {"SLURM_PROCID", "0"},        {"SLURM_LOCALID", "0"},
                  {"SLURM_NODEID", "0"},        {"ENVIRONMENT", "BATCH"}};
  EXPECT_EQ(place_of(batch).launched_by, LaunchedBy::kNobody);
  EXPECT_EQ(place_of(batch, {{"SLURM_STEP_ID", "-5"}}).launched_by, LaunchedBy::kNobody);
  // salloc without an interactive step sets the job's variables only.
  batch.erase("SLURM_PROCID");
  EXPECT_EQ(place_of(batch).launched_by, LaunchedBy::kNobody);
  // salloc's interactive step, as recorded on a cluster.
  const Values interactive = {{"SLURM_STEP_ID", "4294967290"},    {"SLURM_STEP_NUM_TASKS", "1"},
                              {"SLURM_STEP_NODELIST", "n1"},      {"SLURM_STEP_NUM_NODES", "1"},
                              {"SLURM_STEP_TASKS_PER_NODE", "1"}, {"SLURM_PROCID", "0"}};
  EXPECT_TRUE(place_of(batch, interactive).alone());
  EXPECT_EQ(place_of(batch, interactive).launched_by, LaunchedBy::kNobody);
  for (const char* reserved : {"4294967291", "4294967292", "4294967293", "4294967294"})
    EXPECT_EQ(place_of(kSlurm, {{"SLURM_STEP_ID", reserved}}).launched_by, LaunchedBy::kNobody);
  EXPECT_EQ(place_of(kSlurm, {{"SLURM_STEP_NODELIST", ""}}).launched_by, LaunchedBy::kNobody);
  // sbatch from within `srun --pty bash` passes that step's variables on to the script.
  const RankPlace stale = place_of(batch, {{"SLURM_STEP_ID", "0"},
                                           {"SLURM_STEP_NUM_TASKS", "1"},
                                           {"SLURM_STEP_NUM_NODES", "1"},
                                           {"SLURM_STEP_NODELIST", "n9"},
                                           {"SLURM_STEP_TASKS_PER_NODE", "1"},
                                           {"SLURM_PROCID", "0"}});
  EXPECT_TRUE(stale.alone());
}

TEST(RankPlaceTest, OneTaskOfSlurmNeedsNoStore) {
  const RankPlace place = place_of({{"SLURM_STEP_ID", "0"},
                                    {"SLURM_PROCID", "0"},
                                    {"SLURM_LOCALID", "0"},
                                    {"SLURM_NTASKS", "1"},
                                    {"SLURM_STEP_NODELIST", "n1"}});
  EXPECT_EQ(place.launched_by, LaunchedBy::kSlurm);
  EXPECT_TRUE(place.alone());
  EXPECT_EQ(place.store_port, 0);
}

TEST(RankPlaceTest, SlurmMistakes) {
  EXPECT_TELLS(error_of(kSlurm, {{"SLURM_PROCID", "4"}}), "4 is not from 0 to 3");
  EXPECT_TELLS(error_of(kSlurm, {{"SLURM_STEP_ID", "x"}}), "variable SLURM_STEP_ID");
  EXPECT_TELLS(error_of(kSlurm, {{"SLURM_LOCALID", "2"}}), "variable SLURM_LOCALID");
  EXPECT_TELLS(error_of(kSlurm, {{"SLURM_LOCALID", ""}}), "it is not set, and SLURM_PROCID is");
  EXPECT_TELLS(error_of(kSlurm, {{"SLURM_NODEID", "3"}}), "variable SLURM_NODEID");
  EXPECT_TELLS(error_of(kSlurm, {{"SLURM_STEP_NODELIST", "n[2-"}}), "list of nodes");
  EXPECT_TELLS(error_of(kSlurm, {{"SLURM_STEP_TASKS_PER_NODE", "2(x"}}), "list of tasks per node");
  EXPECT_TELLS(error_of(kSlurm, {{"SLURM_STEP_TASKS_PER_NODE", "9,1(x2)"}}), "9 tasks");
  EXPECT_TELLS(error_of(kSlurm, {{"SLURM_JOB_ID", ""}}), "neither MASTER_PORT nor SLURM_JOB_ID");
  EXPECT_TELLS(
      error_of(kSlurm,
               {{"SLURM_STEP_TASKS_PER_NODE", "4"}, {"SLURM_NODEID", "1"}, {"SLURM_LOCALID", "0"}}),
      "names 1 nodes, and this is node 1");
}

TEST(RankPlaceTest, OpenMpiOnOneHost) {
  const RankPlace place = place_of(kOpenMpi);
  EXPECT_EQ(place.launched_by, LaunchedBy::kOpenMpi);
  EXPECT_EQ(place.rank, 1);
  EXPECT_EQ(place.world_size, 2);
  EXPECT_EQ(place.local_rank, 1);
  EXPECT_EQ(place.local_world_size, 2);
  EXPECT_EQ(place.nodes, 1);
  EXPECT_EQ(place.store_host, "127.0.0.1");
  EXPECT_GE(place.store_port, 20000);
  EXPECT_LT(place.store_port, 32768);
  EXPECT_FALSE(place.store_is_hosted);
  EXPECT_EQ(place.job_id, "1327038465");
  const RankPlace other =
      place_of(kOpenMpi, {{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "0"}});
  EXPECT_EQ(other.store_port, place.store_port);
  EXPECT_NE(place_of(kOpenMpi, {{"PMIX_NAMESPACE", "1327038466"}}).store_port, place.store_port);
  EXPECT_EQ(place_of(kOpenMpi, {{"PMIX_NAMESPACE", ""}}).job_id, "1327038464.0");
}

TEST(RankPlaceTest, OpenMpiOnSeveralHosts) {
  const Values several = {{"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_RANK", "3"}};
  const std::string error = error_of(kOpenMpi, several);
  EXPECT_TELLS(error, "MASTER_ADDR is not set");
  EXPECT_TELLS(error, "mpirun -x MASTER_ADDR=");
  EXPECT_TELLS(error, "-x MASTER_PORT=");
  Values told = several;
  told["MASTER_ADDR"] = "head";
  const RankPlace place = place_of(kOpenMpi, told);
  EXPECT_EQ(place.store_host, "head");
  EXPECT_EQ(place.store_port, place_of(kOpenMpi).store_port);
  EXPECT_EQ(place.node, 1);
  EXPECT_EQ(place.nodes, 2);
  EXPECT_TELLS(error_of(kOpenMpi, {{"OMPI_COMM_WORLD_LOCAL_SIZE", ""}}),
               "variable OMPI_COMM_WORLD_LOCAL_SIZE");
  EXPECT_TELLS(error_of(kOpenMpi, {{"PMIX_NAMESPACE", ""}, {"OMPI_MCA_orte_hnp_uri", ""}}),
               "MASTER_PORT is not set");
}

TEST(RankPlaceTest, Pmi) {
  const Values pmi = {{"PMI_RANK", "2"},        {"PMI_SIZE", "4"},       {"MPI_LOCALRANKID", "0"},
                      {"MPI_LOCALNRANKS", "2"}, {"MASTER_ADDR", "head"}, {"MASTER_PORT", "29500"}};
  const RankPlace place = place_of(pmi);
  EXPECT_EQ(place.launched_by, LaunchedBy::kPmi);
  EXPECT_EQ(place.rank, 2);
  EXPECT_EQ(place.world_size, 4);
  EXPECT_EQ(place.local_world_size, 2);
  EXPECT_EQ(place.node, 1);
  EXPECT_EQ(place.job_id, "head-29500");
  EXPECT_TELLS(error_of(pmi, {{"MASTER_PORT", ""}}), "mpiexec -genv MASTER_ADDR");
  EXPECT_TELLS(error_of(pmi, {{"MASTER_ADDR", ""}}), "on several hosts");
  EXPECT_TELLS(error_of(pmi, {{"PMI_RANK", "4"}}), "variable PMI_RANK");
}

TEST(RankPlaceTest, TheOrderOfLaunchers) {
  Values all = kOpenMpi;
  all.insert(kSlurm.begin(), kSlurm.end());
  all.insert({{"PMI_RANK", "0"}, {"PMI_SIZE", "4"}});
  // Ranks below mpirun's daemons, which srun started.
  EXPECT_EQ(place_of(all).launched_by, LaunchedBy::kOpenMpi);
  all.erase("OMPI_COMM_WORLD_RANK");
  EXPECT_EQ(place_of(all).launched_by, LaunchedBy::kSlurm);  // srun's PMI: sizes are equal
  EXPECT_EQ(
      place_of(all, {{"PMI_SIZE", "12"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}}).launched_by,
      LaunchedBy::kPmi);
  all.insert(kTorchrun.begin(), kTorchrun.end());
  EXPECT_EQ(place_of(all).launched_by, LaunchedBy::kTorchrun);
}

TEST(RankPlaceTest, ReadsTheProcessEnvironment) {
  const Environment environment = process_environment();
  EXPECT_EQ(environment("PATH").value_or(""), std::getenv("PATH"));
  EXPECT_FALSE(environment("TESSERA_NO_SUCH_VARIABLE").has_value());
}

}  // namespace
}  // namespace tessera
