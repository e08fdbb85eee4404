// Ranks are threads with a watch each, on a store of this process.
#include "parallel/rank_watch.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <thread>

#include "parallel/transports.h"
#include "store/store_client.h"
#include "store/store_server.h"

namespace tessera {
namespace {

using std::chrono::milliseconds;

class RankWatchTest : public ::testing::Test {
 protected:
  RankPlace place(int rank, int world_size) const {
    RankPlace place;
    place.rank = rank;
    place.world_size = world_size;
    place.store_host = "127.0.0.1";
    place.store_port = store_.port();
    place.job_id = "test";
    place.secret = "secret";
    return place;
  }
  std::unique_ptr<RankWatch> watch(int rank, int world_size,
                                   std::function<void(const Error&)> on_lost = {}) const {
    return std::make_unique<RankWatch>(RankWatch::Options{.place = place(rank, world_size),
                                                          .heartbeat_timeout = milliseconds(2500),
                                                          .on_lost = std::move(on_lost)});
  }
  static void run(int ranks, const std::function<void(int)>& body) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank) threads.emplace_back(body, rank);
    for (std::thread& thread : threads) thread.join();
  }
  static std::string error_of(const std::function<void()>& call) {
    try {
      call();
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }

  StoreServer store_{{}};
};

void expect_contains(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << text;
}

TEST_F(RankWatchTest, RanksTellEachOtherValues) {
  run(3, [&](int rank) {
    const auto mine = watch(rank, 3);
    mine->wait_for_all(milliseconds(5000));
    const std::vector<std::string> expected = {"v0", "v1", "v2"};
    EXPECT_EQ(mine->exchange("values", "v" + std::to_string(rank)), expected);
    if (rank == 1) mine->tell("from one", "hello");
    EXPECT_EQ(mine->hear("from one"), "hello");
    mine->meet("end");
  });
}

TEST_F(RankWatchTest, WhoDoesNotComeIsNamed) {
  const auto mine = watch(0, 4);
  const auto other = watch(2, 4);
  const std::string error = error_of([&] { mine->wait_for_all(milliseconds(300)); });
  expect_contains(error, "2 of 4 ranks have not come within 0 s: rank 1, 3");
}

TEST_F(RankWatchTest, AFailureElsewhereEndsEveryWaitAndNamesTheRank) {
  const auto zero = watch(0, 2), one = watch(1, 2);
  zero->wait_for_all(milliseconds(5000));
  one->report(Error(ErrorKind::kIo, "the disk is full", "/some/file"));
  const std::string heard = error_of([&] { zero->hear("never told"); });
  expect_contains(heard, "rank 1 (host ");
  expect_contains(heard, "failed: the disk is full (/some/file)");
  // A later failure is a consequence: the first stays.
  zero->report(Error(ErrorKind::kData, "something else"));
  const Error why = one->explain(Error(ErrorKind::kComm, "connection reset"));
  EXPECT_EQ(why.kind(), ErrorKind::kComm);
  expect_contains(why.what(), "the disk is full");
}

TEST_F(RankWatchTest, ASilentRankIsGoneAndTheOwnerIsTold) {
  std::atomic<int> told = 0;
  std::string text;
  const auto zero = watch(0, 2, [&](const Error& error) {
    text = error.what();
    ++told;
  });
  auto one = watch(1, 2);
  zero->wait_for_all(milliseconds(5000));
  one->set_phase("step 7");
  std::this_thread::sleep_for(milliseconds(1500));  // a beat with that phase
  one.reset();
  const auto until = std::chrono::steady_clock::now() + milliseconds(12000);
  while (told == 0 && std::chrono::steady_clock::now() < until)
    std::this_thread::sleep_for(milliseconds(50));
  ASSERT_EQ(told, 1);
  expect_contains(text, "rank 1 (host ");
  expect_contains(text, "has given no sign of life for 2 s; last seen at step 7");
}

TEST_F(RankWatchTest, ARankThatIsDoneIsNotMissed) {
  std::atomic<int> told = 0;
  const auto zero = watch(0, 2, [&](const Error&) { ++told; });
  auto one = watch(1, 2);
  zero->wait_for_all(milliseconds(5000));
  one->finish();
  one.reset();
  std::this_thread::sleep_for(milliseconds(7000));
  EXPECT_EQ(told, 0);
  zero->tell("a", "b");
  EXPECT_EQ(zero->hear("a"), "b");
}

TEST_F(RankWatchTest, WhoIsBehindIsNamedWithItsPlace) {
  const auto zero = watch(0, 2), one = watch(1, 2);
  zero->wait_for_all(milliseconds(5000));
  zero->set_phase("step 3");
  zero->enter("all_reduce, gradients of h.1");
  one->set_phase("step 2");
  std::this_thread::sleep_for(milliseconds(1200));
  const std::string error =
      error_of([&] { throw zero->explain(Error(ErrorKind::kComm, "timed out")); });
  expect_contains(error, "rank 1 (host ");
  expect_contains(error, "did not arrive; it is at step 2");
  expect_contains(error, "(rank 0 was at step 3, in all_reduce, gradients of h.1)");
}

TEST_F(RankWatchTest, RanksThatDoDifferentThingsAreTold) {
  auto communicators = make_thread_communicators(2);
  std::vector<std::string> errors(2);
  run(2, [&](int rank) {
    const auto mine = watch(rank, 2);
    const auto checked = make_watched_communicator(
        std::move(communicators[static_cast<std::size_t>(rank)]), *mine, at::kCPU, 2);
    checked->note("first");
    checked->all_reduce(at::ones({4}), ReduceOperation::kSum)->wait();
    checked->note(rank == 0 ? "gradients of h.1" : "gradients of h.0");
    errors[static_cast<std::size_t>(rank)] =
        error_of([&] { checked->all_reduce(at::ones({4 + rank}), ReduceOperation::kSum)->wait(); });
  });
  for (const std::string& error : errors) {
    expect_contains(error, "rank 1 is about to do 'all_reduce, gradients of h.0, 5 elements'");
    expect_contains(error, "rank 0 'all_reduce, gradients of h.1, 4 elements'");
  }
}

TEST_F(RankWatchTest, RanksOfAGroupHaveTheirNumbersInTheWorld) {
  auto communicators = make_thread_communicators(2);
  std::vector<std::string> errors(2);
  run(2, [&](int rank) {
    const auto mine = watch(rank, 2);
    const RankGroup group{.name = "replica-1", .ranks = {3, 7}, .rank = rank};
    const auto checked = make_watched_communicator(
        std::move(communicators[static_cast<std::size_t>(rank)]), *mine, at::kCPU, 2, group);
    checked->note(rank == 0 ? "gradients of h.1" : "gradients of h.0");
    errors[static_cast<std::size_t>(rank)] =
        error_of([&] { checked->all_reduce(at::ones({4}), ReduceOperation::kSum)->wait(); });
  });
  for (const std::string& error : errors) {
    expect_contains(
        error, "rank 7 is about to do 'all_reduce among ranks 3, 7, gradients of h.0, 4 elements'");
    expect_contains(error, "rank 3 'all_reduce among ranks 3, 7, gradients of h.1");
  }
}

TEST_F(RankWatchTest, WhoIsBehindInAnotherGroupIsNotBlamed) {
  const auto zero = watch(0, 3), one = watch(1, 3), two = watch(2, 3);
  zero->wait_for_all(milliseconds(5000));
  zero->enter("all_gather among ranks 0, 2");
  std::this_thread::sleep_for(milliseconds(1200));
  const std::vector<int> group = {0, 2};
  const std::string error =
      error_of([&] { throw zero->explain(Error(ErrorKind::kComm, "timed out"), group); });
  expect_contains(error, "rank 2 (host ");
  expect_contains(error, "did not arrive");
  EXPECT_EQ(error.find("rank 1 ("), std::string::npos) << error;
}

}  // namespace
}  // namespace tessera
