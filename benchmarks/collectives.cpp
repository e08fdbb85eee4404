// Times the verbs of a transport among ranks of this host.
//   collectives gloo|shm RANKS [MIB…]                    forks the ranks
//   mpirun -n RANKS collectives mpi RANKS [MIB…]         is a rank; COLLECTIVES_PORT is a free port
// Prints a line a verb and size: transport ranks verb MiB milliseconds cpu-milliseconds. MiB: of
// the whole tensor (output of an all_gather, input of a reduce_scatter); 0: 64 bytes. Milliseconds:
// the median over repetitions of the slowest rank; cpu: of all ranks together, mean.
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "parallel/transports.h"
#include "store/store_server.h"

namespace {

using tessera::Communicator;
using tessera::ReduceOperation;
using Clock = std::chrono::steady_clock;

double cpu_ms() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  const auto ms = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_usec) / 1e3;
  };
  return ms(usage.ru_utime) + ms(usage.ru_stime);
}

double all_ranks(Communicator& ranks, double value, ReduceOperation operation) {
  const at::Tensor tensor = at::full({1}, value, at::kDouble);
  ranks.all_reduce(tensor, operation)->wait();
  return tensor.item<double>();
}

void measure(Communicator& ranks, const char* verb, double mib, int repetitions,
             const std::function<void()>& call) {
  call();
  call();
  std::vector<double> times;
  const double cpu = cpu_ms();
  for (int i = 0; i < repetitions; ++i) {
    const auto start = Clock::now();
    call();
    times.push_back(std::chrono::duration<double, std::milli>(Clock::now() - start).count());
  }
  const double cpu_each = all_ranks(ranks, (cpu_ms() - cpu) / repetitions, ReduceOperation::kSum);
  for (double& time : times) time = all_ranks(ranks, time, ReduceOperation::kMax);
  std::nth_element(times.begin(), times.begin() + repetitions / 2, times.end());
  if (ranks.rank() != 0) return;
  std::printf("%s %d %s %g %.4f %.4f\n", std::string(ranks.name()).c_str(), ranks.world_size(),
              verb, mib, times[static_cast<std::size_t>(repetitions) / 2], cpu_each);
  std::fflush(stdout);
}

void run(const std::string& transport, const tessera::GroupPlace& place,
         const std::vector<double>& sizes) {
  at::set_num_threads(1);
  const auto ranks = tessera::make_communicator(transport, place);
  for (const double mib : sizes) {
    const std::int64_t part =
        mib == 0 ? 16 : static_cast<std::int64_t>(mib * (1 << 18)) / place.world_size;
    const int repetitions = mib == 0 ? 500 : std::clamp(static_cast<int>(400 / mib), 5, 60);
    const at::Tensor whole = at::full({part * place.world_size}, 1e-30F),
                     mine = at::full({part}, 1e-30F);
    const at::Tensor reduced = mib == 0 ? mine : whole;
    measure(*ranks, "all_reduce", mib, repetitions,
            [&] { ranks->all_reduce(reduced, ReduceOperation::kSum)->wait(); });
    measure(*ranks, "all_gather", mib, repetitions,
            [&] { ranks->all_gather(whole, mine)->wait(); });
    measure(*ranks, "reduce_scatter", mib, repetitions,
            [&] { ranks->reduce_scatter(mine, whole, ReduceOperation::kSum)->wait(); });
  }
}

int fork_ranks(const std::string& transport, tessera::GroupPlace place,
               const std::vector<double>& sizes) {
  const tessera::StoreServer store{tessera::StoreServerOptions{}};
  place.store_port = store.port();
  for (int rank = 0; rank < place.world_size; ++rank) {
    if (fork() != 0) continue;
    place.rank = place.local_rank = rank;
    int code = 0;
    try {
      run(transport, place, sizes);
    } catch (const tessera::Error& error) {
      std::fprintf(stderr, "error: %s\n", error.what());
      code = 1;
    }
    std::fflush(nullptr);
    _exit(code);
  }
  int worst = 0;
  for (int status = 0; wait(&status) > 0;) worst |= status;
  return worst == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: collectives gloo|shm|mpi RANKS [MIB...]\n");
    return 2;
  }
  const std::string transport = argv[1];
  tessera::GroupPlace place{.world_size = std::atoi(argv[2])};
  place.local_world_size = place.world_size;
  place.store_host = "127.0.0.1";
  place.key_prefix = "collectives/";
  place.timeout = std::chrono::seconds(60);
  std::vector<double> sizes;
  for (int i = 3; i < argc; ++i) sizes.push_back(std::atof(argv[i]));
  if (sizes.empty()) sizes = {0, 1, 8, 64, 256};
  try {
    const char* rank = std::getenv("OMPI_COMM_WORLD_RANK");
    if (rank == nullptr) return fork_ranks(transport, place, sizes);
    place.rank = place.local_rank = std::atoi(rank);
    const char* port = std::getenv("COLLECTIVES_PORT");
    place.store_port = port == nullptr ? 29473 : std::atoi(port);
    std::unique_ptr<tessera::StoreServer> store;
    if (place.rank == 0) {
      store = std::make_unique<tessera::StoreServer>(
          tessera::StoreServerOptions{.port = place.store_port});
    }
    run(transport, place, sizes);
  } catch (const tessera::Error& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
  return 0;
}
