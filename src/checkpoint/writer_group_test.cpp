// Several ranks write one checkpoint; ranks are threads.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>

#include "base/temporary_directory.h"
#include "checkpoint/manifest.h"
#include "checkpoint/slice_file.h"
#include "checkpoint/test_group.h"
#include "checkpoint/test_state.h"
#include "checkpoint/writer.h"

namespace tessera {
namespace {

using std::chrono::milliseconds;

constexpr int kRanks = 4;
constexpr int kHolders = 3;  // rank 3 takes part without a slice

// A run of four ranks on the real file system.
struct GroupRun {
  using Change = std::function<void(int rank, CheckpointRequest& request)>;

  CheckpointWriterOptions options(int keep = 0) const { return {folder, keep, 1 << 20, 8}; }

  // What each rank's save ended with; empty where it did not fail. `view` may replace a rank's file
  // system.
  std::vector<std::string> save(std::int64_t step, int keep = 0, const Change& change = {},
                                int failing_rank = -1, const RankView::Before& before = {}) {
    TestGroup group(kRanks);
    std::vector<std::string> errors(kRanks);
    run_ranks(kRanks, [&](int rank) {
      RankView view(
          *files, rank == failing_rank ? before : [](bool) { return Step::kGo; });
      CheckpointWriter writer(view, options(keep), log, group.member(rank));
      errors[static_cast<std::size_t>(rank)] = save_with(writer, rank, step, change);
    });
    EXPECT_EQ(group.told_twice(), 0u);
    return errors;
  }

  std::string save_with(CheckpointWriter& writer, int rank, std::int64_t step,
                        const Change& change = {}) const {
    TestState state(step);
    CheckpointRequest request = state.part(rank, kHolders);
    if (change) change(rank, request);
    try {
      writer.start(std::move(request));
      const auto finished = writer.finish();
      EXPECT_EQ(finished.size(), 1u);
      EXPECT_EQ(finished.at(0).step, step);
      EXPECT_EQ(finished.at(0).path, folder / checkpoint_name(step));
      EXPECT_EQ(finished.at(0).bytes, 4u * (2 * 3 * 5 + 2 * (2 + 3 + 4) * 5 + 4));
    } catch (const Error& error) {
      return error.what();
    }
    return {};
  }

  std::string difference(std::int64_t step) const {
    return TestState(step).difference(CheckpointReader(folder / checkpoint_name(step)));
  }
  std::vector<std::string> visible() { return files->list(folder); }

  TemporaryDirectory temporary;
  std::unique_ptr<FileSystem> files = make_posix_file_system();
  std::vector<std::string> lines;
  Log log{LogLevel::kNormal, [this](std::string_view line) { lines.emplace_back(line); }};
  Path folder = temporary.path() / "run" / "checkpoints";
};

const std::vector<std::string> kNoErrors(kRanks);

TEST(WriterGroupTest, FourWritersSaveWhatOneSaves) {
  GroupRun run;
  EXPECT_EQ(run.save(40), kNoErrors);
  const CheckpointReader reader(run.folder / "step_00000040");
  EXPECT_EQ(TestState(40).difference(reader), "");
  EXPECT_EQ(reader.world_size(), 8);
  std::vector<std::string> names = run.files->list(reader.path());
  std::erase_if(names, [](const std::string& name) { return !name.ends_with(".safetensors"); });
  EXPECT_EQ(names,
            (std::vector<std::string>{
                "model-00001-of-00004.safetensors", "model-00002-of-00004.safetensors",
                "model-00003-of-00004.safetensors", "model-00004-of-00004.safetensors",
                "optimizer-00001-of-00004.safetensors", "optimizer-00002-of-00004.safetensors",
                "optimizer-00003-of-00004.safetensors", "optimizer-00004-of-00004.safetensors"}));
  EXPECT_TRUE(SafetensorsFile(reader.path() / names[3]).tensors().empty());

  const TemporaryDirectory alone;
  CheckpointWriter writer(*run.files, {alone.path(), 0, 0}, run.log);
  TestState state(40);
  writer.start(state.request());
  writer.finish();
  const CheckpointReader one(alone.path() / "step_00000040");
  ASSERT_EQ(one.tensors().size(), reader.tensors().size());
  for (const TensorSpec& spec : one.tensors()) {
    std::vector<std::byte> a(static_cast<std::size_t>(*element_count(spec.shape)) * 4), b(a.size());
    one.read(spec.name, a);
    reader.read(spec.name, b);
    EXPECT_EQ(a, b) << spec.name;
  }
  for (const char* name : {"state.json", "config.yaml", "config.json"})
    EXPECT_EQ(one.file(name), reader.file(name));
}

TEST(WriterGroupTest, AnyRangeIsReadAcrossTheFilesOfTheRanks) {
  GroupRun run;
  EXPECT_EQ(run.save(2), kNoErrors);
  const CheckpointReader reader(run.folder / "step_00000002");
  std::vector<float> whole(20);  // (4, 5), in parts; rank 3 holds nothing of it
  reader.read("h.2.weight", std::as_writable_bytes(std::span(whole)));
  for (std::int64_t begin = 0; begin <= 20; ++begin) {
    for (std::int64_t end = begin; end <= 20; ++end) {
      std::vector<float> part(static_cast<std::size_t>(end - begin));
      reader.read_range("h.2.weight", begin, end, std::as_writable_bytes(std::span(part)));
      ASSERT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + begin));
    }
  }
}

TEST(WriterGroupTest, ARankWithoutAnyGroupTakesPart) {
  GroupRun run;
  TestGroup group(kRanks);
  run_ranks(kRanks, [&](int rank) {
    CheckpointWriter writer(*run.files, run.options(), run.log, group.member(rank));
    TestState state(1);
    writer.start(state.part(rank, 2));
    EXPECT_EQ(writer.finish().size(), 1u);
  });
  EXPECT_EQ(run.difference(1), "");
  EXPECT_TRUE(run.files->exists(run.folder / "step_00000001/model-00003-of-00004.safetensors"));
  EXPECT_FALSE(run.files->exists(run.folder / "step_00000001/model-00004-of-00004.safetensors"));
}

TEST(WriterGroupTest, EqualStatesGiveEqualFilesWhoeverIsSlow) {
  GroupRun one, two;
  EXPECT_EQ(one.save(3), kNoErrors);
  EXPECT_EQ(two.save(3, 0, {}, 1,
                     [](bool) {
                       std::this_thread::sleep_for(milliseconds(5));
                       return Step::kGo;
                     }),
            kNoErrors);
  const Path a = one.folder / "step_00000003", b = two.folder / "step_00000003";
  EXPECT_EQ(one.files->list(a), two.files->list(b));
  for (const std::string& name : one.files->list(a)) {
    if (name != kInfoName && !one.files->is_directory(a / name)) {
      EXPECT_EQ(one.files->read(a / name), two.files->read(b / name)) << name;
    }
  }
}

// While one rank's disk stands still, no other training thread notices.
TEST(WriterGroupTest, ASlowWriterHoldsUpNobodyElse) {
  GroupRun run;
  TestGroup group(kRanks);
  std::promise<void> gate;
  const std::shared_future<void> open = gate.get_future().share();
  std::atomic<int> trained = 0;
  std::thread opener([&] {
    while (trained < kRanks - 1) std::this_thread::sleep_for(milliseconds(1));
    for (const std::string& name : run.visible())
      EXPECT_TRUE(name == ".lock" || name == ".step_00000007.partial") << name;
    gate.set_value();
  });
  run_ranks(kRanks, [&](int rank) {
    RankView view(*run.files, [&](bool) {
      if (rank == 2) open.wait();
      return Step::kGo;
    });
    CheckpointWriter writer(view, run.options(), run.log, group.member(rank));
    TestState state(7);
    writer.start(state.part(rank, kHolders));
    for (int region = 0; region < TestState::kRegions && rank != 2; ++region) {
      writer.before_update(region);
      for (std::size_t i = 0; i < state.size(); ++i) {
        if (state.region(i) != region) continue;
        for (float& value : state.values(i)) value = -1;
      }
    }
    EXPECT_TRUE(writer.poll().empty());
    EXPECT_TRUE(writer.in_flight());
    ++trained;
    EXPECT_EQ(writer.finish().size(), 1u);
  });
  opener.join();
  EXPECT_EQ(run.difference(7), "");
}

TEST(WriterGroupTest, TheSlowWritersOwnStepCopiesOrWaits) {
  for (const std::uint64_t copy_limit : {std::uint64_t{0}, std::uint64_t{1} << 20}) {
    GroupRun run;
    TestGroup group(kRanks);
    run_ranks(kRanks, [&](int rank) {
      RankView view(*run.files, [&](bool) {
        if (rank == 1) std::this_thread::sleep_for(milliseconds(10));
        return Step::kGo;
      });
      CheckpointWriter writer(view, {run.folder, 0, copy_limit, 4}, run.log, group.member(rank));
      TestState state(7);
      writer.start(state.part(rank, kHolders));
      for (int region = 0; region < TestState::kRegions; ++region) {
        writer.before_update(region);
        for (std::size_t i = 0; i < state.size(); ++i) {
          if (state.region(i) != region) continue;
          for (float& value : state.values(i)) value = -1;
        }
      }
      EXPECT_EQ(writer.finish().size(), 1u);
    });
    EXPECT_EQ(run.difference(7), "") << copy_limit;
  }
}

TEST(WriterGroupTest, OneFailureFailsTheSaveOnAllRanksAndNamesTheRank) {
  for (int rank = 0; rank < kRanks; ++rank) {
    GroupRun run;
    EXPECT_EQ(run.save(1), kNoErrors);
    std::atomic<int> operations = 0;
    const auto errors = run.save(2, 0, {}, rank, [&](bool changes) {
      // Beyond what rank 0 does when it is made.
      return changes && ++operations > 8 ? Step::kHalf : Step::kGo;
    });
    for (const std::string& error : errors) {
      EXPECT_EQ(error, errors[0]);
      EXPECT_EQ(error.find("rank " + std::to_string(rank) + " (host "), 0u) << error;
      EXPECT_NE(error.find("could not save the checkpoint: cannot do it: No space left"),
                std::string::npos)
          << error;
    }
    // Rank 0's own disk is full even for the removal in this test.
    auto left = run.visible();
    if (rank == 0) std::erase(left, ".step_00000002.partial");
    EXPECT_EQ(left, (std::vector<std::string>{".lock", "step_00000001"}));
    EXPECT_EQ(run.difference(1), "");
    EXPECT_EQ(run.save(2), kNoErrors);
    EXPECT_EQ(run.visible(), (std::vector<std::string>{".lock", "step_00000001", "step_00000002"}));
  }
}

TEST(WriterGroupTest, OfSeveralFailuresTheFirstIsNamedByAll) {
  GroupRun run;
  TestGroup group(kRanks);
  std::atomic<int> named = 0;
  run_ranks(kRanks, [&](int rank) {
    RankView view(*run.files, [&](bool changes) {
      if (rank == 1) std::this_thread::sleep_for(milliseconds(100));
      return changes && (rank == 1 || rank == 3) ? Step::kFail : Step::kGo;
    });
    CheckpointWriter writer(view, run.options(), run.log, group.member(rank));
    if (run.save_with(writer, rank, 1).starts_with("rank 3 (host ")) ++named;
  });
  EXPECT_EQ(named, kRanks);
}

// The folder of a save that has failed goes when nobody writes into it any more.
TEST(WriterGroupTest, AFailedRankZeroWaitsUntilTheOthersHaveEndedTheirPart) {
  GroupRun run;
  TestGroup group(kRanks);
  std::atomic<int> failed = 0;
  run_ranks(kRanks, [&](int rank) {
    std::atomic<int> changes_seen = 0;
    RankView view(*run.files, [&](bool changes) {
      if (rank == 2) {
        std::this_thread::sleep_for(milliseconds(10));
        EXPECT_TRUE(run.files->exists(run.folder / ".step_00000001.partial"));
      }
      return rank == 0 && changes && ++changes_seen == 9 ? Step::kFail : Step::kGo;
    });
    CheckpointWriter writer(view, run.options(), run.log, group.member(rank));
    if (run.save_with(writer, rank, 1).starts_with("rank 0 (host ")) ++failed;
  });
  EXPECT_EQ(failed, kRanks);
  EXPECT_EQ(run.visible(), (std::vector<std::string>{".lock"}));
}

TEST(WriterGroupTest, TheSameWritersGoOnAfterAFailedSave) {
  GroupRun run;
  TestGroup group(kRanks);
  std::atomic<bool> full = false;
  std::atomic<int> failed = 0;
  run_ranks(kRanks, [&](int rank) {
    RankView view(*run.files, [&](bool changes) {
      return changes && rank == 2 && full ? Step::kFail : Step::kGo;
    });
    CheckpointWriter writer(view, run.options(), run.log, group.member(rank));
    EXPECT_EQ(run.save_with(writer, rank, 1), "");
    if (rank == 2) full = true;
    if (!run.save_with(writer, rank, 2).empty()) ++failed;
    if (rank == 2) full = false;
    EXPECT_EQ(run.save_with(writer, rank, 2), "");
    EXPECT_EQ(run.save_with(writer, rank, 2), "");  // replaces it
  });
  EXPECT_EQ(failed, kRanks);
  EXPECT_EQ(run.difference(2), "");
  EXPECT_EQ(run.visible(), (std::vector<std::string>{".lock", "step_00000001", "step_00000002"}));
  EXPECT_EQ(group.told_twice(), 0u);
  EXPECT_LT(group.remembered_bytes(), 2000u);  // lists of slices do not stay
}

TEST(WriterGroupTest, OnlyRankZeroKeepsAndRecordsTheBest) {
  GroupRun run;
  TestGroup group(kRanks);
  run_ranks(kRanks, [&](int rank) {
    CheckpointWriter writer(*run.files, run.options(2), run.log, group.member(rank));
    for (const std::int64_t step : {1, 2, 3, 4, 5}) {
      const auto change = [&](int, CheckpointRequest& request) {
        if (step == 2) request.best_loss = 3.5;
      };
      EXPECT_EQ(run.save_with(writer, rank, step, change), "");
    }
    writer.mark_best(4, 3.25);
    EXPECT_EQ(run.save_with(writer, rank, 6), "");
    EXPECT_EQ(run.save_with(writer, rank, 7), "");
  });
  EXPECT_EQ(run.visible(), (std::vector<std::string>{".lock", "best.json", "step_00000004",
                                                     "step_00000006", "step_00000007"}));
  EXPECT_EQ(best_checkpoint(*run.files, run.folder, run.log)->step, 4);
  EXPECT_TRUE(run.lines.empty());
}

TEST(WriterGroupTest, SlicesThatAreNotTheWholeStateAreRefused) {
  const std::vector<std::pair<GroupRun::Change, std::string>> cases = {
      {[](int rank, auto& r) {
         if (rank == 1) r.groups[0].slices.pop_back();
       },
       "frozen lacks"},
      {[](int rank, auto& r) {
         if (rank == 2) r.groups[1].slices.clear();
       },
       "lacks elements"},
      {[](int rank, auto& r) {
         if (rank == 2) --r.groups[0].slices[4].begin, r.groups[0].slices[4].data -= sizeof(float);
       },
       "overlap"},
      {[](int rank, auto& r) {
         if (rank == 1) r.groups[0].slices.back().shape = {2, 2};
       },
       "differ in dtype or shape"},
  };
  for (const auto& [change, expected] : cases) {
    GroupRun run;
    for (const std::string& error : run.save(1, 0, change)) {
      EXPECT_NE(error.find("the slices of all ranks are not the whole state: "), std::string::npos)
          << error;
      EXPECT_NE(error.find(expected), std::string::npos) << error;
    }
    EXPECT_EQ(run.visible(), (std::vector<std::string>{".lock"}));
  }
}

TEST(WriterGroupTest, ARequestThatIsRefusedAtOnceFailsTheSaveOfTheOthers) {
  for (int refused = 0; refused < kRanks; ++refused) {
    GroupRun run;
    const auto errors = run.save(1, 0, [&](int rank, CheckpointRequest& request) {
      if (rank == refused) request.groups = {{"a", {}}, {"a", {}}};
    });
    for (int rank = 0; rank < kRanks; ++rank) {
      EXPECT_NE(errors[static_cast<std::size_t>(rank)].find("comes twice"), std::string::npos);
      EXPECT_EQ(errors[static_cast<std::size_t>(rank)].find("rank") != 0, rank == refused);
    }
    EXPECT_EQ(run.visible(), (std::vector<std::string>{".lock"}));
  }
}

TEST(WriterGroupTest, StorageThatIsNotSharedIsNoticed) {
  GroupRun run;
  const TemporaryDirectory elsewhere;
  run.files->create_directories(elsewhere.path() / ".step_00000001.partial");
  TestGroup group(kRanks);
  std::atomic<int> named = 0;
  run_ranks(kRanks, [&](int rank) {
    CheckpointWriterOptions options = run.options();
    if (rank == 1) options.folder = elsewhere.path();
    CheckpointWriter writer(*run.files, options, run.log, group.member(rank));
    if (run.save_with(writer, rank, 1)
            .find("rank 1 has written model-00002-of-00004.safetensors, "
                  "but rank 0 does not see it") != std::string::npos)
      ++named;
  });
  EXPECT_EQ(named, kRanks);
  EXPECT_EQ(run.visible(), (std::vector<std::string>{".lock"}));
}

// An owner that goes while others save: they are told, nobody hangs, nothing stays.
TEST(WriterGroupTest, AWriterThatIsDestroyedGivesTheSaveUp) {
  for (const int leaving : {0, 2}) {
    GroupRun run;
    TestGroup group(kRanks);
    std::atomic<int> failed = 0;
    std::promise<void> gone;
    const std::shared_future<void> left = gone.get_future().share();
    run_ranks(kRanks, [&](int rank) {
      RankView view(*run.files, [&, calls = 0](bool changes) mutable {
        if (changes && rank == leaving && ++calls > 5)
          (void)left.wait_for(milliseconds(200));  // the destructor comes meanwhile
        return Step::kGo;
      });
      std::optional<CheckpointWriter> writer;
      writer.emplace(view, run.options(), run.log, group.member(rank));
      TestState state(1);
      writer->start(state.part(rank, kHolders));
      if (rank == leaving) {
        writer.reset();
        gone.set_value();
        return;
      }
      try {
        writer->finish();
      } catch (const Error& error) {
        EXPECT_NE(std::string(error.what()).find("given up"), std::string::npos) << error.what();
        ++failed;
      }
    });
    EXPECT_EQ(failed, kRanks - 1);
    EXPECT_EQ(run.visible(), (std::vector<std::string>{".lock"}));
  }
}

TEST(WriterGroupTest, MoreWritersThanRanksAreRefused) {
  GroupRun run;
  TestGroup group(kRanks);
  EXPECT_THROW(CheckpointWriter(*run.files, {run.folder, 0, 0, 3}, run.log, group.member(1)),
               Error);
}

TEST(SliceFileTest, NamesOfFiles) {
  EXPECT_EQ(slice_file_name("model", {}), "model.safetensors");
  EXPECT_EQ(slice_file_name("model", {1, 4}), "model-00002-of-00004.safetensors");
  EXPECT_EQ(slice_file_name("a", {123455, 123456}), "a-123456-of-123456.safetensors");
  for (const FileShare share : {FileShare{}, FileShare{0, 2}, FileShare{123455, 123456}}) {
    EXPECT_EQ(slice_file_stem(slice_file_name("model", share)), "model");
    EXPECT_EQ(slice_file_stem(slice_file_name("model-1", share)), "model-1");
  }
  for (const char* name : {"model-of-00004", "model-1-of-00004", "-00001-of-00004", "model", ""})
    EXPECT_EQ(slice_file_stem(name), name);
}

}  // namespace
}  // namespace tessera
