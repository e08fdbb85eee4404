#include "checkpoint/unified.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/faulty_file_system.h"
#include "base/temporary_directory.h"
#include "checkpoint/test_group.h"
#include "checkpoint/test_state.h"

namespace tessera {
namespace {

struct UnifiedRun {
  // A checkpoint that `ranks` wrote together.
  CheckpointReader saved(int ranks, std::int64_t columns = 5) {
    const Path folder = temporary.path() / ("run" + std::to_string(ranks));
    TestGroup group(ranks);
    run_ranks(ranks, [&](int rank) {
      CheckpointWriter writer(*files, {folder, 0, 0, ranks}, log, group.member(rank));
      TestState state(7, columns);
      writer.start(state.part(rank, ranks));
      writer.finish();
    });
    return CheckpointReader(folder / "step_00000007");
  }
  void write(const Path& path, std::string_view text) {
    files->create_directories(path.parent_path());
    write_file_atomically(*files, path, text);
  }
  std::string error_of(const CheckpointReader& checkpoint) {
    try {
      write_unified_model(checkpoint, *files, model);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }

  TemporaryDirectory temporary;
  std::unique_ptr<FileSystem> files = make_posix_file_system();
  Log log{LogLevel::kQuiet, [](std::string_view) {}};
  Path model = temporary.path() / "out" / "model";
};

TEST(UnifiedModelTest, IsTheSameFromAnyNumberOfRanks) {
  UnifiedRun run;
  std::string bytes;
  for (const int ranks : {1, 3, 4}) {
    const CheckpointReader checkpoint = run.saved(ranks);
    write_unified_model(checkpoint, *run.files, run.model);
    EXPECT_EQ(run.files->list(run.model),
              (std::vector<std::string>{"config.json", "merges.txt", "model.safetensors",
                                        "tessera_model.json", "vocab.json"}));
    EXPECT_EQ(run.files->list(run.model.parent_path()), (std::vector<std::string>{"model"}));
    EXPECT_EQ(run.files->read(run.model / "vocab.json"), "{\"a\": 0}");
    const SafetensorsModel model(run.model);
    EXPECT_EQ(model.names(),
              (std::vector<std::string>{"frozen", "h.0.bias", "h.0.weight", "h.1.bias",
                                        "h.1.weight", "h.2.bias", "h.2.weight"}));
    EXPECT_EQ(model.metadata(), (SafetensorsMetadata{{"format", "pt"}}));
    for (const std::string& name : model.names()) {
      const auto tensor = *model.find(name);
      EXPECT_EQ(tensor.info->shape, checkpoint.find(name)->shape);
      std::vector<std::byte> right(tensor.bytes.size());
      checkpoint.read(name, right);
      EXPECT_TRUE(std::equal(right.begin(), right.end(), tensor.bytes.begin())) << name;
    }
    const std::string now = run.files->read(run.model / "model.safetensors");
    EXPECT_TRUE(bytes.empty() || now == bytes) << ranks;
    bytes = now;
  }
}

// A tensor of several buffers, the last one not full, whose parts end inside of them.
TEST(UnifiedModelTest, LargeTensorsPassThroughInPieces) {
  UnifiedRun run;
  const std::int64_t columns = 600'001;
  const CheckpointReader checkpoint = run.saved(3, columns);
  write_unified_model(checkpoint, *run.files, run.model.string() + "/");
  const SafetensorsModel model(run.model);
  for (const char* name : {"h.2.weight", "h.0.bias"}) {
    const auto tensor = *model.find(name);
    std::vector<std::byte> right(tensor.bytes.size());
    checkpoint.read(name, right);
    EXPECT_TRUE(std::equal(right.begin(), right.end(), tensor.bytes.begin())) << name;
  }
}

TEST(UnifiedModelTest, LeavesAFolderAloneThatHoldsSomethingElse) {
  UnifiedRun run;
  const CheckpointReader checkpoint = run.saved(2);
  run.write(run.model / "README.md", "mine");
  EXPECT_NE(run.error_of(checkpoint).find("holds something else as well: README.md"),
            std::string::npos);
  EXPECT_EQ(run.files->list(run.model), (std::vector<std::string>{"README.md"}));
  run.files->remove_all(run.model);
  run.write(run.model, "a file");
  EXPECT_NE(run.error_of(checkpoint).find("a file stands where"), std::string::npos);
  run.files->remove_all(run.model);
  run.write(run.model / "tokenizer.json", "of an older model");
  run.write(run.model.parent_path() / ".model.partial" / "model.safetensors", "of a dead process");
  EXPECT_EQ(run.error_of(checkpoint), "no error");
  EXPECT_EQ(run.files->list(run.model).size(), 5u);
  EXPECT_EQ(run.files->list(run.model.parent_path()), (std::vector<std::string>{"model"}));
}

TEST(UnifiedModelTest, RemovesOnlyWhatItMadeOfAnotherCheckpoint) {
  UnifiedRun run;
  const auto removed = [&](std::optional<std::int64_t> keep) {
    return remove_unified_model(*run.files, run.model, keep);
  };
  EXPECT_FALSE(removed({}));  // there is none
  write_unified_model(run.saved(2), *run.files, run.model);
  EXPECT_FALSE(removed(7));
  run.write(run.model / "notes.txt", "mine");
  EXPECT_TRUE(removed(8));
  EXPECT_EQ(run.files->list(run.model), (std::vector<std::string>{"notes.txt"}));
  run.files->remove_all(run.model);
  run.write(run.model / "model.safetensors", "of another program");
  EXPECT_FALSE(removed({}));
  write_unified_model(run.saved(2), *run.files, run.model);
  // As a process leaves it that dies between its two renames.
  run.files->rename(run.model, run.model.parent_path() / ".model.replaced");
  EXPECT_TRUE(removed({}));
  EXPECT_TRUE(run.files->list(run.model.parent_path()).empty());
}

TEST(UnifiedModelTest, ACheckpointThatIsNoModelIsRefused) {
  UnifiedRun run;
  const auto save = [&](const std::function<void(CheckpointRequest&)>& change) {
    CheckpointWriter writer(*run.files, {run.temporary.path() / "run", 0, 0}, run.log);
    TestState state(1);
    CheckpointRequest request = state.request();
    change(request);
    writer.start(std::move(request));
    writer.finish();
    return CheckpointReader(run.temporary.path() / "run" / "step_00000001");
  };
  // Told by the file: a tensor's name says nothing.
  EXPECT_NE(run.error_of(save([](auto& r) { r.groups[0].stem = "adapter"; })).find("no model"),
            std::string::npos);
  EXPECT_NE(run.error_of(save([](auto& r) { r.files.erase(r.files.begin()); })).find("config.json"),
            std::string::npos);
  EXPECT_NE(run.error_of(save([](auto& r) {
                 r.files.push_back({"vocab.json", ""});
               }))
                .find("beside another file of that name"),
            std::string::npos);
  EXPECT_FALSE(run.files->exists(run.model));
}

TEST(UnifiedModelTest, AFailureOrDeathAtAnyOperationLeavesTheOldModelOrTheNew) {
  UnifiedRun run;
  const CheckpointReader checkpoint = run.saved(3);
  const Path folder = "/a/model";
  const auto prepared = [&] {
    auto disk = std::make_unique<FaultyFileSystem>();
    disk->create_directories(folder);
    for (const Path& path : {folder, Path("/a"), Path("/")}) {
      if (path == folder) write_file_atomically(*disk, folder / "config.json", "old");
      disk->sync_directory(path);
    }
    return disk;
  };
  auto healthy = prepared();
  const std::int64_t before = healthy->operations();
  write_unified_model(checkpoint, *healthy, folder);
  const std::int64_t operations = healthy->operations() - before;
  const std::vector<std::string> all = healthy->list(folder);
  const std::string weights = healthy->read(folder / "model.safetensors");
  const auto expect_old_or_new = [&](FaultyFileSystem& disk, const std::string& what) {
    const auto names = disk.list(folder);
    const bool old = names.size() == 1 && disk.read(folder / "config.json") == "old";
    const bool hidden = names.empty() && disk.exists("/a/.model.replaced/config.json");
    const bool whole = names == all && disk.read(folder / "model.safetensors") == weights;
    EXPECT_TRUE(old || hidden || whole) << what;
    write_unified_model(checkpoint, disk, folder);
    EXPECT_EQ(disk.list(folder), all) << what;
    EXPECT_EQ(disk.list("/a"), (std::vector<std::string>{"model"})) << what;
  };
  for (const Fault fault : {Fault::kKilled, Fault::kFailOnce, Fault::kDiskFull}) {
    for (std::int64_t n = 0; n < operations; ++n) {
      auto disk = prepared();
      disk->arm(fault, n);
      try {
        write_unified_model(checkpoint, *disk, folder);
      } catch (const Error&) {
      }
      const std::string what =
          std::to_string(static_cast<int>(fault)) + " at operation " + std::to_string(n);
      for (const Survival survival :
           {Survival::kEverything, Survival::kOnlyFlushed, Survival::kSomething}) {
        expect_old_or_new(*disk->after_crash(survival, static_cast<std::uint32_t>(n)), what);
      }
    }
  }
}

}  // namespace
}  // namespace tessera
