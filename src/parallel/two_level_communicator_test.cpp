// Two levels against one: the same values in the same places, by ranks as threads.
#include "parallel/two_level_communicator.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <exception>
#include <functional>
#include <thread>

#include "base/error.h"
#include "parallel/collective_checks.h"
#include "parallel/transports.h"

namespace tessera {
namespace {

using testing::CollectiveChecks;
using testing::values_of;
using Body = std::function<void(Communicator& two_level, Communicator& flat)>;

struct Shape {
  int nodes, locals;
  int ranks() const { return nodes * locals; }
};
constexpr Shape kShapes[] = {{2, 2}, {2, 3}, {3, 2}, {1, 2}, {2, 1}};

// Rank l * N + j of the group is local rank l on node j.
void run_two_levels(const Shape& shape, const Body& body) {
  const std::chrono::milliseconds limit(30000);
  auto flat = make_thread_communicators(shape.ranks(), limit);
  std::vector<std::vector<std::unique_ptr<Communicator>>> inside, across;
  for (int node = 0; node < shape.nodes; ++node) {
    inside.push_back(make_thread_communicators(shape.locals, limit));
  }
  for (int local = 0; local < shape.locals; ++local) {
    across.push_back(make_thread_communicators(shape.nodes, limit));
  }
  std::vector<std::exception_ptr> failures(static_cast<std::size_t>(shape.ranks()));
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < failures.size(); ++rank) {
    const std::size_t local = rank / static_cast<std::size_t>(shape.nodes);
    const std::size_t node = rank % static_cast<std::size_t>(shape.nodes);
    threads.emplace_back([&, rank, own = std::move(flat[rank]),
                          in_node = std::move(inside[node][local]),
                          over_nodes = std::move(across[local][node])]() mutable {
      // Destroyed at the end, whatever happened: the others then hear that this rank has left.
      const std::unique_ptr<Communicator> one = std::move(own);
      const auto two = make_two_level_communicator(std::move(in_node), std::move(over_nodes));
      try {
        EXPECT_EQ(two->rank(), one->rank());
        EXPECT_EQ(two->world_size(), one->world_size());
        body(*two, *one);
      } catch (...) {
        failures[rank] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
}

// Whole numbers, whose sums are exact in any order.
at::Tensor whole_numbers(int rank, std::int64_t count) {
  return values_of(rank, 0, count, at::kLong).remainder(1000).to(at::kFloat);
}

TEST(TwoLevel, GivesTheValuesOfOneLevel) {
  for (const Shape& shape : kShapes) {
    run_two_levels(shape, [&shape](Communicator& two, Communicator& one) {
      const int ranks = shape.ranks(), rank = two.rank();
      for (const std::int64_t count : {1, 5, 4096}) {
        const at::Tensor mine = whole_numbers(rank, count);
        at::Tensor expected = at::zeros({count * ranks}), got = at::zeros({count * ranks});
        one.all_gather(expected, mine)->wait();
        two.all_gather(got, mine)->wait();
        EXPECT_TRUE(at::equal(got, expected)) << shape.nodes << " × " << shape.locals;
        // In place.
        got.zero_();
        got.narrow(0, rank * count, count).copy_(mine);
        two.all_gather(got, got.narrow(0, rank * count, count))->wait();
        EXPECT_TRUE(at::equal(got, expected)) << shape.nodes << " × " << shape.locals;

        for (const ReduceOperation operation : {ReduceOperation::kSum, ReduceOperation::kMax}) {
          const at::Tensor all = whole_numbers(rank, count * ranks);
          at::Tensor sum = at::zeros({count}), sum_of_two = at::zeros({count});
          one.reduce_scatter(sum, all.clone(), operation)->wait();
          two.reduce_scatter(sum_of_two, all.clone(), operation)->wait();
          EXPECT_TRUE(at::equal(sum_of_two, sum)) << shape.nodes << " × " << shape.locals;
          const at::Tensor input = all.clone(), part = input.narrow(0, rank * count, count);
          two.reduce_scatter(part, input, operation)->wait();
          EXPECT_TRUE(at::equal(part, sum)) << shape.nodes << " × " << shape.locals;

          at::Tensor reduced = mine.clone(), reduced_by_two = mine.clone();
          one.all_reduce(reduced, operation)->wait();
          two.all_reduce(reduced_by_two, operation)->wait();
          EXPECT_TRUE(at::equal(reduced_by_two, reduced)) << shape.nodes << " × " << shape.locals;
        }
      }
    });
  }
}

TEST(TwoLevel, EveryVerbAndTypeHasTheSameBitsOnEveryRank) {
  for (const Shape& shape : kShapes) {
    std::vector<std::string> digests(static_cast<std::size_t>(shape.ranks()));
    run_two_levels(shape, [&](Communicator& two, Communicator&) {
      CollectiveChecks checks(two);
      for (const auto type : {at::kFloat, at::kDouble, at::kLong}) {
        for (const std::int64_t count : {0, 1, 5, 3001}) checks.run(count, type);
      }
      digests[static_cast<std::size_t>(two.rank())] = checks.digest();
    });
    for (const std::string& digest : digests) EXPECT_EQ(digest, digests[0]);
  }
}

TEST(TwoLevel, HalfPrecisionIsRoundedOnceALevel) {
  run_two_levels({2, 3}, [](Communicator& two, Communicator&) {
    const at::Tensor tensor = at::full({7}, 1.0F + static_cast<float>(two.rank()), at::kBFloat16);
    two.all_reduce(tensor, ReduceOperation::kSum)->wait();
    EXPECT_TRUE(tensor.eq(21).all().item<bool>()) << tensor;
  });
}

TEST(TwoLevel, OperationsInFlightStayInOrder) {
  run_two_levels({2, 2}, [](Communicator& two, Communicator&) {
    constexpr int kOperations = 30;
    const float mine = static_cast<float>(two.rank()) + 1;
    std::vector<at::Tensor> gathered, reduced;
    std::vector<std::unique_ptr<Work>> works;
    for (int i = 0; i < kOperations; ++i) {
      gathered.push_back(at::zeros({4 * (i + 1)}));
      works.push_back(two.all_gather(gathered.back(), at::full({i + 1}, mine + 10.0F * i)));
      reduced.push_back(at::zeros({i + 1}));
      works.push_back(two.reduce_scatter(reduced.back(), at::full({4 * (i + 1)}, mine + 10.0F * i),
                                         ReduceOperation::kSum));
      if (i % 5 == 0) (void)two.barrier();  // nobody waits for this one
    }
    for (auto work = works.rbegin(); work != works.rend(); ++work) (*work)->wait();
    for (int i = 0; i < kOperations; ++i) {
      const auto index = static_cast<std::size_t>(i);
      const at::Tensor expected =
          at::tensor({1.0F, 2.0F, 3.0F, 4.0F}).add(10.0F * i).repeat_interleave(i + 1);
      EXPECT_TRUE(at::equal(gathered[index], expected)) << i;
      EXPECT_TRUE(reduced[index].eq(10.0F + 40.0F * i).all().item<bool>()) << i;
    }
  });
}

TEST(TwoLevel, ABarrierWaitsForEveryRank) {
  std::atomic<int> arrived = 0;
  run_two_levels({2, 3}, [&](Communicator& two, Communicator&) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20 * two.rank()));
    ++arrived;
    two.barrier()->wait();
    EXPECT_EQ(arrived, 6);
  });
}

TEST(TwoLevel, ARankThatLeavesEndsTheOthers) {
  std::atomic<int> failed = 0;
  run_two_levels({2, 2}, [&](Communicator& two, Communicator&) {
    const at::Tensor tensor = at::ones({8});
    two.all_reduce(tensor, ReduceOperation::kSum)->wait();
    if (two.rank() == 3) return;
    try {
      two.all_reduce(tensor, ReduceOperation::kSum)->wait();
      two.all_reduce(tensor, ReduceOperation::kSum)->wait();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kComm);
      ++failed;
    }
  });
  EXPECT_EQ(failed, 3);
}

}  // namespace
}  // namespace tessera
