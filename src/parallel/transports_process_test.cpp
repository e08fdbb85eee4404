// Transports between processes: gloo and shm as forked ranks, mpi by starting this program under
// mpirun.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <thread>

#include "parallel/collective_checks.h"
#include "parallel/rank_processes.h"

namespace tessera::testing {

void end_process(int code) { _exit(code); }

namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr at::ScalarType kTypes[] = {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf, at::kLong};

std::string run_all_verbs(Communicator& communicator) {
  at::set_num_threads(1);  // there are more ranks than processors already
  CollectiveChecks checks(communicator);
  for (const at::ScalarType type : kTypes) {
    for (const std::int64_t count : {1, 1000, 40'009}) checks.run(count, type);
  }
  for (const std::int64_t count : {0, 3, 4097}) checks.run(count, at::kFloat);
  checks.run(700'001, at::kFloat);  // 2.8 MB: larger than a rank's buffers
  return checks.digest();
}

std::set<std::string> shared_memory_files() {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
    names.insert(entry.path().filename());
  }
  return names;
}

milliseconds since(steady_clock::time_point start) {
  return std::chrono::duration_cast<milliseconds>(steady_clock::now() - start);
}

class BetweenProcesses : public ::testing::TestWithParam<const char*> {
 protected:
  std::string transport() const { return GetParam(); }
};

INSTANTIATE_TEST_SUITE_P(Transports, BetweenProcesses, ::testing::Values("gloo", "shm"),
                         [](const auto& instance) { return std::string(instance.param); });

TEST_P(BetweenProcesses, EveryVerbAndTypeAgainstSumsInDouble) {
  const std::set<std::string> before = shared_memory_files();
  for (int world_size = 1; world_size <= 4; ++world_size) {
    std::string first;
    for (int repetition = 0; repetition < (world_size == 3 ? 2 : 1); ++repetition) {
      RankProcesses ranks(transport(), world_size, [](const RankRun& run) {
        return run_all_verbs(*make_communicator(run.transport, run.place));
      });
      for (const std::string& digest : ranks.texts()) {
        if (first.empty()) first = digest;
        EXPECT_EQ(digest, first) << "not the same bits on every rank and in every run, world size "
                                 << world_size;
      }
    }
    EXPECT_FALSE(first.empty());
  }
  EXPECT_EQ(shared_memory_files(), before);
}

TEST_P(BetweenProcesses, ManyOperationsAtOnceEndInOrder) {
  RankProcesses ranks(transport(), 3, [](const RankRun& run) -> std::string {
    const auto communicator = make_communicator(run.transport, run.place);
    std::vector<at::Tensor> tensors;
    std::vector<std::unique_ptr<Work>> works;
    for (int i = 0; i < 40; ++i) {
      tensors.push_back(at::full({1 + 997 * i}, 1.0F + static_cast<float>(run.place.rank) + i));
      works.push_back(communicator->all_reduce(tensors.back(), ReduceOperation::kSum));
      if (i % 7 == 0) (void)communicator->barrier();  // nobody waits for this one
    }
    for (auto& work : works) work->wait();
    for (int i = 0; i < 40; ++i) {
      if (!tensors[static_cast<std::size_t>(i)].eq(6.0F + 3 * i).all().item<bool>()) {
        throw std::runtime_error("operation " + std::to_string(i));
      }
    }
    return {};
  });
  ranks.texts();
}

TEST_P(BetweenProcesses, ReturnsBeforeItIsDone) {
  RankProcesses ranks(transport(), 2, [](const RankRun& run) -> std::string {
    const auto communicator = make_communicator(run.transport, run.place);
    communicator->barrier()->wait();
    const at::Tensor tensor = at::ones({1'000'000});
    if (run.place.rank == 1) std::this_thread::sleep_for(milliseconds(600));
    const auto start = steady_clock::now();
    const auto work = communicator->all_reduce(tensor, ReduceOperation::kSum);
    const milliseconds asked = since(start);
    work->wait();
    const milliseconds done = since(start);
    if (!tensor.eq(2).all().item<bool>()) throw std::runtime_error("wrong sum");
    if (run.place.rank == 0 && (asked > milliseconds(200) || done < milliseconds(400))) {
      throw std::runtime_error("asked " + std::to_string(asked.count()) + " ms, done " +
                               std::to_string(done.count()) + " ms");
    }
    return {};
  });
  ranks.texts();
}

// Ranks 0 and 1 wait in an operation to which rank 2 does not come.
RankProcesses::Body without_rank_2(const std::function<void()>& instead,
                                   std::int64_t count = 100'000) {
  return [instead, count](const RankRun& run) -> std::string {
    const auto communicator = make_communicator(run.transport, run.place);
    communicator->note("gradients of h.3");
    const at::Tensor tensor = at::ones({count});
    for (int i = 0; i < 3; ++i) communicator->all_reduce(tensor, ReduceOperation::kSum)->wait();
    if (run.place.rank == 2) instead();
    communicator->all_reduce(tensor, ReduceOperation::kSum)->wait();
    return "done";
  };
}

TEST_P(BetweenProcesses, AKilledRankEndsTheOthers) {
  const std::set<std::string> before = shared_memory_files();
  RankProcesses ranks(transport(), 3, without_rank_2([] { raise(SIGKILL); }));
  for (const int rank : {0, 1}) {
    const RankEnd& end = ranks.end_of(rank);
    EXPECT_EQ(end.exit_code, exit_code(ErrorKind::kComm)) << end.text << " signal " << end.signal;
    EXPECT_NE(end.text.find("all_reduce 4 (gradients of h.3) failed"), std::string::npos)
        << end.text;
    EXPECT_NE(end.text.find("rank " + std::to_string(rank) + " of 3"), std::string::npos)
        << end.text;
    EXPECT_LT(end.elapsed, milliseconds(10'000));
    if (transport() == "shm") {
      EXPECT_NE(end.text.find("rank 2"), std::string::npos) << end.text;
    }
  }
  EXPECT_EQ(ranks.end_of(2).signal, SIGKILL);
  EXPECT_EQ(shared_memory_files(), before);
}

TEST_P(BetweenProcesses, AStoppedRankRunsIntoTheTimeLimit) {
  RankProcesses ranks(transport(), 3, without_rank_2([] { raise(SIGSTOP); }), milliseconds(2000));
  for (const int rank : {0, 1}) {
    const RankEnd& end = ranks.end_of(rank);
    EXPECT_EQ(end.exit_code, exit_code(ErrorKind::kComm)) << end.text;
    EXPECT_LT(end.elapsed, milliseconds(15'000));
    if (transport() == "shm") {
      EXPECT_NE(end.text.find("rank 2"), std::string::npos) << end.text;
    }
  }
}

TEST_P(BetweenProcesses, ARankThatNeverComesIsNamed) {
  RankProcesses ranks(
      transport(), 3,
      [](const RankRun& run) -> std::string {
        if (run.place.rank == 1) return "stayed away";
        make_communicator(run.transport, run.place);
        return "came";
      },
      milliseconds(1500));
  for (const int rank : {0, 2}) {
    const RankEnd& end = ranks.end_of(rank);
    EXPECT_EQ(end.exit_code, exit_code(ErrorKind::kComm)) << end.text;
    EXPECT_NE(end.text.find("1500 ms: 1 (rank"), std::string::npos) << end.text;
    EXPECT_LT(end.elapsed, milliseconds(15'000));
  }
}

// 0 2 | 1 3, each with a store prefix of its own.
GroupPlace part_of(const GroupPlace& world) {
  GroupPlace part = world;
  const int color = world.rank % 2;
  part.key_prefix += "part" + std::to_string(color) + "/";
  part.rank = part.local_rank = world.rank / 2;
  part.world_size = part.local_world_size = 2;
  part.world_ranks = {color, color + 2};
  return part;
}

TEST_P(BetweenProcesses, PartOfTheRanksIsAGroup) {
  RankProcesses ranks(transport(), 4, [](const RankRun& run) -> std::string {
    const auto world = make_communicator(run.transport, run.place);
    const auto part = make_communicator(run.transport, part_of(run.place));
    const at::Tensor own = at::full({1000}, 1.0F + static_cast<float>(run.place.rank));
    const at::Tensor of_world = own.clone(), of_part = own.clone();
    const auto first = part->all_reduce(of_part, ReduceOperation::kSum);
    const auto second = world->all_reduce(of_world, ReduceOperation::kSum);
    second->wait();
    first->wait();
    const float expected = run.place.rank % 2 == 0 ? 1.0F + 3.0F : 2.0F + 4.0F;
    if (!of_part.eq(expected).all().item<bool>()) throw std::runtime_error("sum of the part");
    if (!of_world.eq(10).all().item<bool>()) throw std::runtime_error("sum of the world");
    return {};
  });
  ranks.texts();
}

TEST_P(BetweenProcesses, ARankOfAGroupHasItsNumberInTheWorld) {
  RankProcesses ranks(
      transport(), 4,
      [](const RankRun& run) -> std::string {
        if (run.place.rank == 3) return "stayed away";
        make_communicator(run.transport, part_of(run.place));
        return "came";
      },
      milliseconds(1500));
  EXPECT_EQ(ranks.end_of(0).text, "came");
  EXPECT_EQ(ranks.end_of(2).text, "came");
  const RankEnd& end = ranks.end_of(1);
  EXPECT_EQ(end.exit_code, exit_code(ErrorKind::kComm)) << end.text;
  EXPECT_NE(end.text.find("1500 ms: 3 (rank 1 (0 of 2 of its group), " + transport()),
            std::string::npos)
      << end.text;
}

TEST(SharedMemory, AKilledRankOfAGroupHasItsNumberInTheWorld) {
  RankProcesses ranks("shm", 4, [](const RankRun& run) -> std::string {
    const auto part = make_communicator(run.transport, part_of(run.place));
    part->barrier()->wait();
    if (run.place.rank == 3) raise(SIGKILL);
    part->barrier()->wait();
    return {};
  });
  EXPECT_EQ(ranks.end_of(2).exit_code, 0);
  const RankEnd& end = ranks.end_of(1);
  EXPECT_EQ(end.exit_code, exit_code(ErrorKind::kComm)) << end.text;
  EXPECT_NE(end.text.find("the process of rank 3 ("), std::string::npos) << end.text;
  EXPECT_NE(end.text.find("(rank 1 (0 of 2 of its group), shm)"), std::string::npos) << end.text;
}

TEST(SharedMemory, AStoppedRankIsNamedHoweverFarItCame) {
  // Larger than all buffers, and stopped from outside at some moment.
  RankProcesses ranks(
      "shm", 3,
      [](const RankRun& run) -> std::string {
        const auto communicator = make_communicator(run.transport, run.place);
        const at::Tensor tensor = at::ones({3'000'000});
        while (true) communicator->all_reduce(tensor, ReduceOperation::kSum)->wait();
      },
      milliseconds(1500));
  std::this_thread::sleep_for(milliseconds(700));
  ranks.send(1, SIGSTOP);
  for (const int rank : {0, 2}) {
    const RankEnd& end = ranks.end_of(rank);
    EXPECT_EQ(end.exit_code, exit_code(ErrorKind::kComm)) << end.text;
    EXPECT_TRUE(end.text.find("rank 1 did not arrive within 1500 ms") != std::string::npos ||
                end.text.find("rank 1 is missing") != std::string::npos)
        << end.text;
  }
}

TEST(SharedMemory, ARankThatLeavesIsNamedAtOnce) {
  RankProcesses ranks("shm", 3, without_rank_2([] { throw std::runtime_error("disk full"); }));
  for (const int rank : {0, 1}) {
    const RankEnd& end = ranks.end_of(rank);
    EXPECT_EQ(end.exit_code, exit_code(ErrorKind::kComm)) << end.text;
    EXPECT_TRUE(end.text.find("rank 2 has left the group") != std::string::npos ||
                end.text.find("rank 2 is missing") != std::string::npos)
        << end.text;
    EXPECT_LT(end.elapsed, milliseconds(5'000));
  }
  EXPECT_EQ(ranks.end_of(2).text, "disk full");
}

TEST(SharedMemory, LeavingDoesNotWaitForOperationsOfOthers) {
  RankProcesses ranks("shm", 2, [](const RankRun& run) -> std::string {
    auto communicator = make_communicator(run.transport, run.place);
    if (run.place.rank == 1) {
      std::this_thread::sleep_for(milliseconds(3000));
      return {};
    }
    const auto work = communicator->barrier(), next = communicator->barrier();
    std::this_thread::sleep_for(milliseconds(50));
    const auto start = steady_clock::now();
    communicator.reset();
    if (since(start) > milliseconds(1000)) throw std::runtime_error("waited");
    for (Work* left : {work.get(), next.get()}) {
      try {
        left->wait();
        return "an operation without rank 1 was done";
      } catch (const Error&) {
      }
    }
    return {};
  });
  EXPECT_EQ(ranks.end_of(0).exit_code, 0) << ranks.end_of(0).text;
  EXPECT_EQ(ranks.end_of(0).text, "");
}

TEST(SharedMemory, RanksAtDifferentOperationsAreNoticed) {
  RankProcesses ranks("shm", 2, [](const RankRun& run) -> std::string {
    const auto communicator = make_communicator(run.transport, run.place);
    const at::Tensor tensor = at::ones({100 + run.place.rank});
    communicator->all_reduce(tensor, ReduceOperation::kSum)->wait();
    return "added";
  });
  for (const int rank : {0, 1}) {
    const RankEnd& end = ranks.end_of(rank);
    EXPECT_EQ(end.exit_code, exit_code(ErrorKind::kComm)) << end.text;
  }
  EXPECT_NE((ranks.end_of(0).text + ranks.end_of(1).text).find("is at another operation"),
            std::string::npos);
}

TEST(SharedMemory, IsRefusedAcrossHosts) {
  GroupPlace place{.world_size = 4, .local_world_size = 2};
  try {
    make_communicator("shm", place);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    EXPECT_NE(std::string(error.what()).find("gloo"), std::string::npos) << error.what();
  }
}

TEST(Transports, AutoTakesSharedMemoryOnOneHostAndGlooElsewhere) {
  const auto name = [](const RankRun& run) {
    GroupPlace place = run.place;
    if (run.transport == "several hosts") place.local_world_size = 1;
    return std::string(make_communicator("auto", place)->name());
  };
  EXPECT_EQ(RankProcesses("one host", 2, name).texts(), (std::vector<std::string>{"shm", "shm"}));
  EXPECT_EQ(RankProcesses("several hosts", 2, name).texts(),
            (std::vector<std::string>{"gloo", "gloo"}));
  EXPECT_EQ(RankProcesses("one rank", 1, name).texts(), (std::vector<std::string>{"single"}));
}

// Under mpirun this program is a rank; else it starts mpirun on itself.
class UnderMpirun : public ::testing::Test {
 protected:
  static bool is_rank() { return std::getenv("OMPI_COMM_WORLD_RANK") != nullptr; }

  static void start(int ranks, const std::string& test, int expected) {
    if (std::system("command -v mpirun >/dev/null") != 0) GTEST_SKIP() << "mpirun is not installed";
    const std::string self = std::filesystem::read_symlink("/proc/self/exe");
    if (!std::filesystem::exists(std::filesystem::path(self).parent_path().parent_path() /
                                 "libtessera_mpi.so")) {
      GTEST_SKIP() << "built without MPI";
    }
    const StoreServer store{StoreServerOptions{}};
    const std::string command =
        "env -u GTEST_OUTPUT TESSERA_TEST_STORE=" + std::to_string(store.port()) +
        " timeout 100 mpirun --allow-run-as-root --oversubscribe --bind-to none -n " +
        std::to_string(ranks) + " " + self + " --gtest_filter=UnderMpirun." + test + " 2>&1";
    FILE* const output = popen(command.c_str(), "r");
    ASSERT_NE(output, nullptr);
    std::string text;
    char buffer[4096];
    for (std::size_t n; (n = fread(buffer, 1, sizeof buffer, output)) > 0;) text.append(buffer, n);
    const int status = pclose(output);
    ASSERT_TRUE(WIFEXITED(status)) << text;
    EXPECT_EQ(WEXITSTATUS(status), expected) << ranks << " ranks: " << command << "\n" << text;
  }

  static GroupPlace place() {
    GroupPlace place{.rank = std::atoi(std::getenv("OMPI_COMM_WORLD_RANK")),
                     .world_size = std::atoi(std::getenv("OMPI_COMM_WORLD_SIZE"))};
    place.local_world_size = place.world_size;
    place.store_host = "127.0.0.1";
    place.store_port = std::atoi(std::getenv("TESSERA_TEST_STORE"));
    place.key_prefix = "mpi/";
    place.timeout = std::chrono::seconds(30);
    return place;
  }
};

TEST_F(UnderMpirun, EveryVerbAndTypeAgainstSumsInDouble) {
  if (!is_rank()) {
    for (int ranks = 1; ranks <= 4; ++ranks) start(ranks, "EveryVerbAndType*", 0);
    return;
  }
  const auto communicator = make_communicator("mpi", place());
  const std::string digest = run_all_verbs(*communicator);
  if (communicator->world_size() == 3) {
    EXPECT_EQ(run_all_verbs(*communicator), digest);
  }
  // The same text on all ranks: the greatest and the smallest are one.
  const auto number = static_cast<std::int64_t>(hash64(digest) >> 2);
  const at::Tensor numbers = at::tensor({number, -number}, at::kLong);
  communicator->all_reduce(numbers, ReduceOperation::kMax)->wait();
  EXPECT_EQ(numbers[0].item<std::int64_t>(), number);
  EXPECT_EQ(numbers[1].item<std::int64_t>(), -number);
}

TEST_F(UnderMpirun, PartOfTheRanksIsAGroup) {
  if (!is_rank()) return start(4, "PartOfTheRanks*", 0);
  GroupPlace part = place();
  const int color = part.rank % 2;  // 0 2 | 1 3
  part.key_prefix += "part" + std::to_string(color) + "/";
  part.rank /= 2;
  part.world_size = part.local_world_size = 2;
  const auto communicator = make_communicator("mpi", part);
  const at::Tensor tensor = at::full({1000}, 1 + color + 10 * part.rank, at::kFloat);
  communicator->all_reduce(tensor, ReduceOperation::kSum)->wait();
  EXPECT_TRUE(tensor.eq(2 * (1 + color) + 10).all().item<bool>());
}

TEST_F(UnderMpirun, ARankThatDoesNotComeRunsIntoTheTimeLimit) {
  if (!is_rank()) return start(2, "ARankThatDoesNotCome*", 5);
  GroupPlace limited = place();
  limited.timeout = milliseconds(1000);
  const auto communicator = make_communicator("mpi", limited);
  if (limited.rank == 1) {
    std::this_thread::sleep_for(milliseconds(3000));
    _exit(0);
  }
  try {
    communicator->barrier()->wait();
    _exit(9);
  } catch (const Error& error) {
    const std::string text = error.what();
    const bool good = error.kind() == ErrorKind::kComm &&
                      text.find("not all ranks arrived within 1000 ms") != std::string::npos;
    _exit(good ? 5 : 9);
  }
}

TEST(Mpi, IsRefusedWithoutMpirun) {
  if (std::getenv("OMPI_COMM_WORLD_RANK") != nullptr) return;
  try {
    make_communicator("mpi", {});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    const std::string text = error.what();
    EXPECT_TRUE(text.find("mpirun") != std::string::npos ||
                text.find("libopenmpi-dev") != std::string::npos)
        << text;
  }
}

}  // namespace
}  // namespace tessera::testing
