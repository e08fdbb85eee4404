// What is left when a save is cut short at any of its operations.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <set>

#include "base/error.h"
#include "base/faulty_file_system.h"
#include "base/temporary_directory.h"
#include "checkpoint/manifest.h"
#include "checkpoint/sealed_text.h"
#include "checkpoint/test_group.h"
#include "checkpoint/test_state.h"

namespace tessera {
namespace {

const Path kFolder = "/run/checkpoints";

Log silent_log() {
  return Log(LogLevel::kQuiet, [](std::string_view) {});
}

struct Scenario {
  const char* name;
  std::vector<std::int64_t> before;  // saved and durable
  std::int64_t step;                 // the save that meets the fault
  int keep;
  bool best;
};

const Scenario kScenarios[] = {
    {"first", {}, 40, 1, true},
    {"next, the old one goes", {20}, 40, 1, false},
    {"next, two go but the best stays", {5, 10, 20}, 40, 1, true},
    {"the same step again", {40}, 40, 1, false},
    {"the same step again among others", {20, 40}, 40, 2, true},
};

void save(FileSystem& files, const Scenario& scenario, std::int64_t step) {
  Log log = silent_log();
  CheckpointWriter writer(files, {kFolder, scenario.keep, 0}, log);
  TestState state(step);
  CheckpointRequest request = state.request();
  if (scenario.best) request.best_loss = 100.0 - static_cast<double>(step);
  writer.start(std::move(request));
  writer.finish();
}

std::unique_ptr<FaultyFileSystem> prepared(const Scenario& scenario) {
  auto files = std::make_unique<FaultyFileSystem>();
  for (const std::int64_t step : scenario.before) {
    Scenario all = scenario;
    all.keep = 0;
    save(*files, all, step);
  }
  return files;
}

// All that a reader can see: names and content, but no content of hidden folders, and of info.json
// (it holds times) only whether it is right.
std::string visible_content(FaultyFileSystem& disk, const Path& folder) {
  std::string text;
  for (const std::string& name : disk.list(folder)) {
    const Path path = folder / name;
    text += "\n" + path.string() + ": ";
    const bool hidden = name.ends_with(".partial") || name.ends_with(".removing");
    if (disk.is_directory(path)) {
      if (!hidden) text += visible_content(disk, path);
    } else if (name == kInfoName) {
      try {
        check_seal(disk.read(path), path);
        text += "right";
      } catch (const Error&) {
        text += "wrong";
      }
    } else {
      text += disk.read(path);
    }
  }
  return text;
}

// Fails unless a start would find a whole checkpoint on this disk, the old one or the new. Disks
// that look the same to a reader are checked once.
void expect_whole(FaultyFileSystem& disk, const Scenario& scenario, bool must_be_new,
                  const std::string& what) {
  static std::set<std::string> checked;
  const std::string key = std::string(scenario.name) + (must_be_new ? "/new/" : "/any/") +
                          std::to_string(scenario.step);
  if (!checked.insert(key + visible_content(disk, "/")).second) return;
  const TemporaryDirectory real;
  disk.export_to(real.path());
  const auto files = make_posix_file_system();
  std::vector<std::string> lines;
  Log log(LogLevel::kNormal, [&](std::string_view line) { lines.emplace_back(line); });
  const auto reader = find_newest_checkpoint(*files, real.path() / "run" / "checkpoints", log);
  if (scenario.before.empty() && !must_be_new && !reader) return;
  ASSERT_TRUE(reader) << what;
  const std::int64_t old_step = scenario.before.empty() ? -1 : scenario.before.back();
  ASSERT_TRUE(reader->step() == scenario.step || (!must_be_new && reader->step() == old_step))
      << what << ": step " << reader->step();
  ASSERT_EQ(TestState(reader->step()).difference(*reader), "") << what;
  for (const CheckpointEntry& entry :
       list_checkpoints(*files, real.path() / "run" / "checkpoints")) {
    ASSERT_EQ(TestState(entry.step).difference(CheckpointReader(entry.path)), "")
        << what << ", " << entry.path;
  }
  ASSERT_TRUE(lines.empty()) << what << ": " << lines[0];
  if (const auto best = best_checkpoint(*files, real.path() / "run" / "checkpoints", log)) {
    ASSERT_EQ(TestState(best->step).difference(CheckpointReader(best->path)), "") << what;
  }
  ASSERT_TRUE(lines.empty()) << what << ": " << lines[0];
  if (scenario.best && !scenario.before.empty()) {
    ASSERT_TRUE(best_checkpoint(*files, real.path() / "run" / "checkpoints", log)) << what;
  }
}

// A restart must work on whatever was left, and leave nothing hidden behind.
void expect_restart_works(FaultyFileSystem& disk, const Scenario& scenario,
                          const std::string& what) {
  save(disk, scenario, 60);
  for (const std::string& name : disk.list(kFolder)) {
    ASSERT_TRUE(name == "best.json" || checkpoint_step(name)) << what << " leaves " << name;
  }
  Scenario later = scenario;
  later.step = 60;
  expect_whole(disk, later, true, what + ", restarted");
}

std::int64_t operations_of(const Scenario& scenario) {
  auto files = prepared(scenario);
  const std::int64_t before = files->operations();
  save(*files, scenario, scenario.step);
  return files->operations() - before;
}

TEST(CheckpointCrashTest, DeathAtAnyOperationLeavesAWholeCheckpoint) {
  for (const Scenario& scenario : kScenarios) {
    const std::int64_t operations = operations_of(scenario);
    ASSERT_GT(operations, 40);
    for (std::int64_t n = 0; n < operations; ++n) {
      auto files = prepared(scenario);
      files->arm(Fault::kKilled, n);
      bool failed = false;
      try {
        save(*files, scenario, scenario.step);
      } catch (const Error&) {
        failed = true;
      }
      ASSERT_TRUE(files->tripped());
      const std::string what =
          std::string(scenario.name) + ", killed at operation " + std::to_string(n);
      // The process died, but the machine lives: everything done so far is there.
      expect_whole(*files->after_crash(Survival::kEverything), scenario, !failed, what);
      // The machine lost power.
      expect_whole(*files->after_crash(Survival::kOnlyFlushed), scenario, !failed,
                   what + ", only what was flushed");
      for (std::uint32_t seed = 1; seed <= 3; ++seed) {
        auto disk = files->after_crash(Survival::kSomething, seed);
        const std::string with_seed = what + ", seed " + std::to_string(seed);
        expect_whole(*disk, scenario, !failed, with_seed);
        if (seed == 1) expect_restart_works(*disk, scenario, with_seed);
        if (::testing::Test::HasFatalFailure()) return;
      }
      // A new process tidies up on the same machine, and then the power goes.
      files->arm(Fault::kNone, 0);
      Log log = silent_log();
      { CheckpointWriter(*files, {kFolder, 1, 0}, log); }
      for (const Survival survival : {Survival::kOnlyFlushed, Survival::kSomething}) {
        expect_whole(*files->after_crash(survival, static_cast<std::uint32_t>(n)), scenario,
                     !failed, what + ", tidied up, then power lost");
      }
    }
  }
}

TEST(CheckpointCrashTest, AFailureAtAnyOperationIsThrownAndHarmless) {
  for (const Fault fault : {Fault::kFailOnce, Fault::kDiskFull}) {
    for (const Scenario& scenario : kScenarios) {
      const std::int64_t operations = operations_of(scenario);
      for (std::int64_t n = 0; n < operations; ++n) {
        auto files = prepared(scenario);
        files->arm(fault, n);
        bool failed = false;
        try {
          save(*files, scenario, scenario.step);
        } catch (const Error& error) {
          failed = true;
          ASSERT_EQ(error.kind(), ErrorKind::kIo) << error.what();
        }
        const std::string what =
            std::string(scenario.name) + ", operation " + std::to_string(n) + " fails";
        for (const std::string& name : files->list(kFolder)) {
          const bool hidden_rest = name.ends_with(".partial");
          ASSERT_FALSE(hidden_rest && fault == Fault::kDiskFull) << what << " leaves " << name;
        }
        expect_whole(*files->after_crash(Survival::kEverything), scenario, !failed, what);
        expect_whole(*files->after_crash(Survival::kOnlyFlushed), scenario, !failed,
                     what + ", then power lost");
        files->arm(Fault::kNone, 0);
        expect_restart_works(*files, scenario, what);
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

TEST(CheckpointCrashTest, TheWriterGoesOnAfterAFailedSave) {
  FaultyFileSystem files;
  Log log = silent_log();
  CheckpointWriter writer(files, {kFolder, 2, 0}, log);
  TestState state(1);
  writer.start(state.request());
  EXPECT_EQ(writer.finish().size(), 1u);
  files.arm(Fault::kFailOnce, 10);
  TestState failing(2);
  writer.start(failing.request());
  EXPECT_THROW(writer.finish(), Error);
  EXPECT_TRUE(writer.poll().empty());  // once
  EXPECT_FALSE(writer.in_flight());
  EXPECT_EQ(list_checkpoints(files, kFolder).size(), 1u);
  TestState later(3);
  writer.start(later.request());
  EXPECT_EQ(writer.finish().size(), 1u);
  EXPECT_EQ(list_checkpoints(files, kFolder).size(), 2u);
}

// What one rank of a group meets: its n-th operation that changes something fails, or is its last.
struct RankFault {
  int rank = -1;
  Fault fault = Fault::kNone;
  std::int64_t n = 0;
};

struct GroupOutcome {
  std::vector<std::string> errors;       // by rank; empty: none
  std::vector<std::int64_t> operations;  // by rank
};

constexpr int kGroup = 4, kGroupHolders = 3;

// Four ranks on one disk, as four processes would save.
GroupOutcome save_as_group(FaultyFileSystem& disk, const Scenario& scenario, std::int64_t step,
                           const RankFault& fault = {}) {
  TestGroup group(kGroup);
  GroupOutcome outcome{std::vector<std::string>(kGroup), std::vector<std::int64_t>(kGroup)};
  run_ranks(kGroup, [&](int rank) {
    std::int64_t& operations = outcome.operations[static_cast<std::size_t>(rank)];
    std::atomic<bool> dead = false;
    RankView view(disk, [&](bool changes) {
      if (dead) return Step::kFail;
      if (!changes) return Step::kGo;
      const std::int64_t n = operations++;
      if (rank != fault.rank || n < fault.n || fault.fault == Fault::kNone) return Step::kGo;
      if (fault.fault == Fault::kFailOnce) return n == fault.n ? Step::kHalf : Step::kGo;
      dead = true;
      group.kill(rank);
      return Step::kHalf;
    });
    Log log = silent_log();
    try {
      CheckpointWriter writer(view, {kFolder, scenario.keep, 0, kGroup}, log, group.member(rank));
      TestState state(step);
      CheckpointRequest request = state.part(rank, kGroupHolders);
      if (scenario.best) request.best_loss = 100.0 - static_cast<double>(step);
      writer.start(std::move(request));
      writer.finish();
    } catch (const Error& error) {
      outcome.errors[static_cast<std::size_t>(rank)] = error.what();
      group.fail(error);  // as a run does with whatever ends its training thread
    }
  });
  return outcome;
}

bool any_visible(FaultyFileSystem& disk, std::int64_t step) {
  return disk.exists(kFolder / checkpoint_name(step));
}

TEST(CheckpointGroupCrashTest, ARankKilledAtAnyOperationLeavesAWholeCheckpoint) {
  for (const Scenario& scenario : kScenarios) {
    const auto operations = save_as_group(*prepared(scenario), scenario, scenario.step).operations;
    ASSERT_GT(operations[0], 40);
    ASSERT_GT(operations[1], 10);
    for (int rank = 0; rank < kGroup; ++rank) {
      for (std::int64_t n = 0; n < operations[static_cast<std::size_t>(rank)]; ++n) {
        auto disk = prepared(scenario);
        const GroupOutcome outcome =
            save_as_group(*disk, scenario, scenario.step, {rank, Fault::kKilled, n});
        const std::string what = std::string(scenario.name) + ", rank " + std::to_string(rank) +
                                 " killed at operation " + std::to_string(n);
        // Nobody hangs, and nobody takes for saved what is not.
        bool saved = false;
        for (const std::string& error : outcome.errors) saved = saved || error.empty();
        ASSERT_TRUE(!saved || rank == 0) << what;  // rank 0 may die tidying up
        expect_whole(*disk->after_crash(Survival::kEverything), scenario, saved, what);
        expect_whole(*disk->after_crash(Survival::kOnlyFlushed), scenario, saved,
                     what + ", only what was flushed");
        auto after = disk->after_crash(Survival::kSomething, static_cast<std::uint32_t>(n));
        expect_whole(*after, scenario, saved, what + ", some of the rest");
        expect_restart_works(*after, scenario, what);
        expect_restart_works(*disk, scenario, what + ", on the same machine");
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

TEST(CheckpointGroupCrashTest, AFailureAtAnyOperationOfAnyRankFailsTheSaveOnAll) {
  for (const Scenario& scenario : kScenarios) {
    const auto operations = save_as_group(*prepared(scenario), scenario, scenario.step).operations;
    for (int rank = 0; rank < kGroup; ++rank) {
      for (std::int64_t n = 0; n < operations[static_cast<std::size_t>(rank)]; ++n) {
        auto disk = prepared(scenario);
        const GroupOutcome outcome =
            save_as_group(*disk, scenario, scenario.step, {rank, Fault::kFailOnce, n});
        const std::string what = std::string(scenario.name) + ", operation " + std::to_string(n) +
                                 " of rank " + std::to_string(rank) + " fails";
        const bool all_failed =
            std::ranges::none_of(outcome.errors, [](const auto& error) { return error.empty(); });
        if (!all_failed) {
          // What comes after the checkpoint has its name is rank 0's alone.
          ASSERT_EQ(rank, 0) << what;
          ASSERT_TRUE(any_visible(*disk, scenario.step)) << what;
        } else if (rank > 0) {
          for (const std::string& error : outcome.errors) {
            ASSERT_EQ(error, outcome.errors[0]) << what;
            ASSERT_EQ(error.find("rank " + std::to_string(rank) + " (host "), 0u) << error;
          }
          for (const std::string& name : disk->list(kFolder))
            ASSERT_TRUE(name == "best.json" || checkpoint_step(name)) << what << " leaves " << name;
        }
        expect_whole(*disk->after_crash(Survival::kEverything), scenario, !all_failed, what);
        expect_whole(*disk->after_crash(Survival::kOnlyFlushed), scenario, !all_failed,
                     what + ", then power lost");
        expect_restart_works(*disk, scenario, what);
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

// The test of the test: a writer that forgets to flush must be caught by the model of a crash.
TEST(FaultyFileSystemTest, ForgetsWhatWasNotFlushed) {
  FaultyFileSystem files;
  files.create_directories("/a");
  files.sync_directory("/");
  auto file = files.create("/a/b");
  file->write(std::string_view("text"));
  EXPECT_FALSE(files.after_crash(Survival::kOnlyFlushed)->exists("/a/b"));
  files.sync_directory("/a");
  EXPECT_EQ(files.after_crash(Survival::kOnlyFlushed)->read("/a/b"), "");
  file->sync();
  EXPECT_EQ(files.after_crash(Survival::kOnlyFlushed)->read("/a/b"), "text");
  files.rename("/a/b", "/a/c");
  EXPECT_TRUE(files.after_crash(Survival::kOnlyFlushed)->exists("/a/b"));
  EXPECT_TRUE(files.after_crash(Survival::kEverything)->exists("/a/c"));
  files.arm(Fault::kKilled, 0);
  EXPECT_THROW(files.remove_all("/a/c"), Error);
  EXPECT_FALSE(files.exists("/a/c"));
}

}  // namespace
}  // namespace tessera
