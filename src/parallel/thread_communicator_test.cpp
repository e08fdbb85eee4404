// In-process ranks, the transport of one process, and what all transports check.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <functional>
#include <thread>

#include "base/error.h"
#include "parallel/collective_checks.h"
#include "parallel/collective_communicator.h"
#include "parallel/ordered_worker.h"
#include "parallel/transports.h"

namespace tessera {
namespace {

using std::chrono::milliseconds;
using testing::CollectiveChecks;

// What each rank threw; empty where it ended well.
std::vector<std::string> on_threads(int world_size, milliseconds timeout,
                                    const std::function<void(Communicator&)>& body) {
  auto ranks = make_thread_communicators(world_size, timeout);
  std::vector<std::string> failures(static_cast<std::size_t>(world_size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world_size; ++rank) {
    threads.emplace_back([&, rank] {
      const auto index = static_cast<std::size_t>(rank);
      const std::unique_ptr<Communicator> communicator = std::move(ranks[index]);
      try {
        body(*communicator);
      } catch (const std::exception& error) {
        failures[index] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return failures;
}

TEST(Threads, EveryVerbAndType) {
  for (int world_size = 1; world_size <= 4; ++world_size) {
    std::vector<std::string> digests(static_cast<std::size_t>(world_size));
    const auto failures = on_threads(world_size, milliseconds(30000), [&](Communicator& ranks) {
      CollectiveChecks checks(ranks);
      for (const auto type : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf, at::kLong}) {
        for (const std::int64_t count : {0, 1, 5, 3001}) checks.run(count, type);
      }
      digests[static_cast<std::size_t>(ranks.rank())] = checks.digest();
    });
    for (const std::string& failure : failures) EXPECT_EQ(failure, "");
    for (const std::string& digest : digests) EXPECT_EQ(digest, digests[0]);
  }
}

TEST(Threads, ReturnsBeforeTheOthersCome) {
  auto ranks = make_thread_communicators(2);
  const at::Tensor mine = at::full({3}, 1.0F), other = at::full({3}, 2.0F);
  const auto first = ranks[0]->all_reduce(mine, ReduceOperation::kSum);
  EXPECT_TRUE(mine.eq(1).all().item<bool>());
  const auto second = ranks[1]->all_reduce(other, ReduceOperation::kSum);
  first->wait();
  second->wait();
  EXPECT_TRUE(mine.eq(3).all().item<bool>());
  EXPECT_TRUE(other.eq(3).all().item<bool>());
}

TEST(Threads, ARankThatThrowsEndsTheOthersAtOnce) {
  const auto start = std::chrono::steady_clock::now();
  const auto failures = on_threads(3, milliseconds(60000), [](Communicator& ranks) {
    ranks.barrier()->wait();
    if (ranks.rank() == 1) throw std::runtime_error("disk full");
    ranks.barrier()->wait();
  });
  EXPECT_LT(std::chrono::steady_clock::now() - start, milliseconds(10000));
  EXPECT_EQ(failures[1], "disk full");
  for (const int rank : {0, 2}) {
    const std::string& text = failures[static_cast<std::size_t>(rank)];
    EXPECT_NE(text.find("barrier 2 failed: rank 1 has left the group"), std::string::npos) << text;
  }
}

TEST(Threads, ARankThatIsLateRunsIntoTheTimeLimit) {
  const auto failures = on_threads(2, milliseconds(200), [](Communicator& ranks) {
    if (ranks.rank() == 1) std::this_thread::sleep_for(milliseconds(1500));
    ranks.barrier()->wait();
  });
  EXPECT_NE(failures[0].find("not all ranks arrived within 200 ms"), std::string::npos)
      << failures[0];
  EXPECT_NE(failures[1], "");
}

TEST(Threads, DifferentOperationsAreNoticed) {
  const auto failures = on_threads(2, milliseconds(5000), [](Communicator& ranks) {
    ranks.all_reduce(at::ones({3 + ranks.rank()}), ReduceOperation::kSum)->wait();
  });
  for (const std::string& text : failures) {
    EXPECT_NE(text.find("different operations"), std::string::npos) << text;
  }
}

TEST(SingleProcess, EveryVerbAndType) {
  const auto alone = make_single_process_communicator();
  CollectiveChecks checks(*alone);
  for (const auto type : {at::kFloat, at::kBFloat16, at::kLong}) {
    for (const std::int64_t count : {0, 1, 1001}) checks.run(count, type);
  }
}

template <class Call>
std::string refusal(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInternal);
    return error.what();
  }
  return "accepted";
}

TEST(Arguments, WhatBreaksTheContractIsRefused) {
  auto ranks = make_thread_communicators(2);
  Communicator& rank = *ranks[0];
  rank.note("gradients of h.3");
  const auto contains = [](const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  contains(refusal([&] { (void)rank.all_gather(at::ones({5}), at::ones({3})); }),
           "the output of all_gather 1 (gradients of h.3) has 5 elements instead of 6");
  contains(refusal([&] {
             (void)rank.reduce_scatter(at::ones({3}), at::ones({5}), ReduceOperation::kSum);
           }),
           "the input of reduce_scatter 2 (gradients of h.3) has 5 elements instead of 6");
  contains(refusal([&] {
             (void)rank.all_reduce(at::ones({4, 4}).t(), ReduceOperation::kSum);
           }),
           "is not contiguous");
  contains(refusal([&] { (void)rank.all_reduce(at::ones({4}, at::kByte), ReduceOperation::kSum); }),
           "has no sum here");
  contains(refusal([&] { (void)rank.all_gather(at::ones({6}), at::ones({3}, at::kDouble)); }),
           "is Double, the output Float");
  contains(refusal([&] { (void)rank.broadcast(at::ones({6}), 2); }), "has the root 2");
}

TEST(Transports, AnUnknownNameListsTheValidOnes) {
  try {
    make_communicator("glo", {});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    const std::string text = error.what();
    EXPECT_NE(text.find("Did you mean 'gloo'? Valid: auto, gloo, shm, mpi, nccl."),
              std::string::npos)
        << text;
  }
}

TEST(OrderedWorkerTest, RunsInOrderAndFailsForGood) {
  OrderedWorker worker;
  std::vector<int> order;
  auto first = worker.run([&] {
    std::this_thread::sleep_for(milliseconds(50));
    order.push_back(1);
  });
  auto second = worker.run([&] { order.push_back(2); });
  auto third = worker.run([&] { throw Error(ErrorKind::kComm, "rank 7 is gone"); });
  auto fourth = worker.run([&] { order.push_back(4); });
  second->wait();
  first->wait();
  for (Work* work : {third.get(), fourth.get()}) {
    try {
      work->wait();
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.reason(), "rank 7 is gone");
    }
  }
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
}

TEST(OrderedWorkerTest, DropsWhatATaskHoldsBeforeItIsDone) {
  OrderedWorker worker;
  const auto held = std::make_shared<int>(1);
  worker.run([held] {})->wait();
  EXPECT_EQ(held.use_count(), 1);
}

TEST(OrderedWorkerTest, WorksOutliveIt) {
  std::unique_ptr<Work> done, dropped;
  {
    OrderedWorker worker;
    done = worker.run([] { std::this_thread::sleep_for(milliseconds(100)); });
    std::this_thread::sleep_for(milliseconds(20));
    dropped = worker.run([] {});
  }
  done->wait();
  EXPECT_THROW(dropped->wait(), Error);
}

}  // namespace
}  // namespace tessera
