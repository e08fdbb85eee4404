// Ranks are threads with a watch each, on a store of this process, and write real checkpoints.
#include "train/save_group.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>

#include "base/error.h"
#include "base/temporary_directory.h"
#include "checkpoint/test_group.h"
#include "checkpoint/test_state.h"
#include "store/store_server.h"

namespace tessera {
namespace {

using std::chrono::milliseconds;

class SaveGroupTest : public ::testing::Test {
 protected:
  static constexpr int kRanks = 4;

  std::unique_ptr<RankWatch> watch(int rank) const {
    RankPlace place;
    place.rank = rank;
    place.world_size = kRanks;
    place.store_host = "127.0.0.1";
    place.store_port = store_.port();
    place.job_id = "test";
    place.secret = "secret";
    return std::make_unique<RankWatch>(
        RankWatch::Options{.place = place, .heartbeat_timeout = milliseconds(2500), .on_lost = {}});
  }
  // What the save of this rank ended with; empty where it did not fail.
  std::string save(CheckpointWriter& writer, int rank, std::int64_t step) const {
    TestState state(step);
    try {
      writer.start(state.part(rank, kRanks));
      writer.finish();
    } catch (const Error& error) {
      return error.what();
    }
    return {};
  }
  std::string difference(std::int64_t step) const {
    return TestState(step).difference(CheckpointReader(folder_ / checkpoint_name(step)));
  }

  StoreServer store_{{}};
  TemporaryDirectory temporary_;
  Path folder_ = temporary_.path() / "checkpoints";
  std::unique_ptr<FileSystem> files_ = make_posix_file_system();
  Log log_{LogLevel::kQuiet, [](std::string_view) {}};
};

TEST_F(SaveGroupTest, RanksSaveTogetherThroughTheStore) {
  run_ranks(kRanks, [&](int rank) {
    const auto mine = watch(rank);
    mine->wait_for_all(milliseconds(5000));
    const auto group = make_save_group(*mine, rank, kRanks);
    CheckpointWriter writer(*files_, {folder_, 2, 1 << 20, kRanks}, log_, *group);
    for (const std::int64_t step : {1, 2, 3, 3}) EXPECT_EQ(save(writer, rank, step), "");
    mine->meet("end");
  });
  EXPECT_EQ(difference(2), "");
  EXPECT_EQ(difference(3), "");
  EXPECT_EQ(files_->list(folder_),
            (std::vector<std::string>{".lock", "step_00000002", "step_00000003"}));
}

TEST_F(SaveGroupTest, AFullDiskOfOneRankIsHeardByAll) {
  run_ranks(kRanks, [&](int rank) {
    const auto mine = watch(rank);
    mine->wait_for_all(milliseconds(5000));
    const auto group = make_save_group(*mine, rank, kRanks);
    std::atomic<bool> full = rank == 2;
    RankView view(*files_, [&](bool changes) { return changes && full ? Step::kHalf : Step::kGo; });
    CheckpointWriter writer(view, {folder_, 0, 1 << 20, kRanks}, log_, *group);
    const std::string error = save(writer, rank, 1);
    EXPECT_EQ(error.find("rank 2 (host "), 0u) << error;
    EXPECT_NE(error.find("No space left"), std::string::npos) << error;
    full = false;
    EXPECT_EQ(save(writer, rank, 1), "");
    mine->meet("end");
  });
  EXPECT_EQ(difference(1), "");
}

// A rank that ends without a word in the middle of a save.
TEST_F(SaveGroupTest, ARankThatIsGoneHangsNobodyAndTheNextRunClearsUp) {
  std::atomic<int> heard = 0;
  run_ranks(kRanks, [&](int rank) {
    const auto mine = watch(rank);
    mine->wait_for_all(milliseconds(5000));
    if (rank == 1) return;
    const auto group = make_save_group(*mine, rank, kRanks);
    CheckpointWriter writer(*files_, {folder_, 0, 1 << 20, kRanks}, log_, *group);
    const std::string error = save(writer, rank, 1);
    EXPECT_NE(error.find("rank 1 (host "), std::string::npos) << error;
    if (error.find("sign of life") != std::string::npos) ++heard;
  });
  EXPECT_EQ(heard, kRanks - 1);
  files_->create_directories(folder_ / ".step_00000001.partial");
  CheckpointWriter next(*files_, {folder_, 0, 0}, log_);
  EXPECT_EQ(files_->list(folder_), (std::vector<std::string>{".lock"}));
}

// A writing thread that waits must not keep the training thread from the store.
TEST_F(SaveGroupTest, TheTrainingThreadTalksWhileTheWritingThreadWaits) {
  const auto zero = watch(0), one = watch(1);
  const auto group = make_save_group(*zero, 0, kRanks);
  std::thread writing([&] { EXPECT_EQ(group->hear("late"), "here"); });
  std::this_thread::sleep_for(milliseconds(200));
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 10; ++i) zero->tell("training/" + std::to_string(i), "x");
  const auto took = std::chrono::steady_clock::now() - begin;
  one->tell("save/late", "here");
  writing.join();
  EXPECT_LT(took, milliseconds(2000));
}

}  // namespace
}  // namespace tessera
