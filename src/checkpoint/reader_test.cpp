#include "checkpoint/reader.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <random>

#include "base/error.h"
#include "base/hash.h"
#include "base/temporary_directory.h"
#include "checkpoint/manifest.h"
#include "checkpoint/sealed_text.h"
#include "checkpoint/slice_file.h"
#include "checkpoint/test_state.h"

namespace tessera {
namespace {

// A checkpoint as several ranks would leave it: each a file with its parts.
class HandMadeCheckpoint {
 public:
  HandMadeCheckpoint(FileSystem& files, Path folder) : files_(files), folder_(std::move(folder)) {
    files_.create_directories(folder_);
    manifest_.step = 9;
    for (const std::string_view name : {kStateName, kConfigName}) add_plain(std::string(name));
    write_file_atomically(files_, folder_ / kInfoName, seal_json("{\"a\": 1}"));
    manifest_.files.push_back({std::string(kInfoName), FileClass::kSealed, 0, {}, 0, {}});
  }

  void add_rank(const SliceGroup& group) {
    SliceFilePlan plan = plan_slice_file(group, {});
    auto file = files_.create(folder_ / plan.entry.name);
    file->write(plan.header);
    for (std::size_t i = 0; i < plan.slices.size(); ++i) {
      SliceEntry& entry = plan.entry.slices[i];
      const std::span bytes(plan.slices[i].data, entry.bytes());
      file->write_at(entry.offset, bytes);
      entry.checksum = content_hash({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    }
    file->close();
    manifest_.files.push_back(plan.entry);
    ++manifest_.world_size;
  }

  CheckpointReader open() {
    write_file_atomically(files_, folder_ / kManifestName, manifest_text(manifest_));
    return CheckpointReader(folder_);
  }

 private:
  void add_plain(const std::string& name) {
    write_file_atomically(files_, folder_ / name, "{}");
    manifest_.files.push_back({name, FileClass::kPlain, 2, content_hash("{}"), 0, {}});
  }

  FileSystem& files_;
  Path folder_;
  Manifest manifest_;
};

struct SplitTensor {
  SplitTensor() : values(28) { std::iota(values.begin(), values.end(), 100.0f); }
  // Elements of a (4, 7) tensor; the cuts at 9 and 18 are inside rows.
  Slice slice(std::int64_t begin, std::int64_t end) const {
    return {"w",   Dtype::kF32, {4, 7},
            begin, end,         reinterpret_cast<const std::byte*>(values.data() + begin),
            0};
  }
  std::vector<float> values;
};

TEST(CheckpointReaderTest, AssemblesTensorsFromTheFilesOfThreeRanks) {
  const TemporaryDirectory folder;
  const auto files = make_posix_file_system();
  const SplitTensor w;
  HandMadeCheckpoint checkpoint(*files, folder.path() / "step_00000009");
  // Neither the order of the ranks nor empty shards matter.
  checkpoint.add_rank({"model.rank2", {w.slice(18, 28)}});
  checkpoint.add_rank({"model.rank0", {w.slice(0, 9), w.slice(28, 28)}});
  checkpoint.add_rank({"model.rank1", {w.slice(9, 18)}});
  const CheckpointReader reader = checkpoint.open();
  EXPECT_EQ(reader.world_size(), 4);
  ASSERT_NE(reader.find("w"), nullptr);
  EXPECT_EQ(reader.find("w")->shape, (std::vector<std::int64_t>{4, 7}));
  for (std::int64_t begin = 0; begin <= 28; ++begin) {
    for (std::int64_t end = begin; end <= 28; ++end) {
      std::vector<float> out(static_cast<std::size_t>(end - begin));
      reader.read_range("w", begin, end, std::as_writable_bytes(std::span(out)));
      ASSERT_TRUE(std::equal(out.begin(), out.end(), w.values.begin() + begin))
          << begin << " to " << end;
    }
  }
  std::vector<float> out(28);
  reader.read("w", std::as_writable_bytes(std::span(out)));
  EXPECT_EQ(out, w.values);
  const auto bytes = std::as_writable_bytes(std::span(out));
  EXPECT_THROW(reader.read_range("w", 0, 29, bytes), Error);
  EXPECT_THROW(reader.read_range("w", -1, 27, bytes), Error);
  EXPECT_THROW(reader.read_range("w", 0, 27, bytes), Error);
  EXPECT_THROW(reader.read("v", bytes), Error);
  // A part is named by its range, so that the file alone tells what it holds.
  EXPECT_NE(SafetensorsFile(reader.path() / "model.rank1.safetensors").find("w[9:18]"), nullptr);
}

TEST(CheckpointReaderTest, TellsTheTensorsOfAStemWhoeverWroteThem) {
  const TemporaryDirectory folder;
  const auto files = make_posix_file_system();
  const SplitTensor w;
  Slice other = w.slice(0, 28);
  other.name = "exp_avg/w";
  HandMadeCheckpoint checkpoint(*files, folder.path() / "step_00000009");
  checkpoint.add_rank({"model-00001-of-00002", {w.slice(0, 9)}});
  checkpoint.add_rank({"model-00002-of-00002", {w.slice(9, 28)}});
  checkpoint.add_rank({"optimizer", {other}});
  const CheckpointReader reader = checkpoint.open();
  ASSERT_EQ(reader.tensors("model").size(), 1u);
  EXPECT_EQ(reader.tensors("model")[0].name, "w");
  ASSERT_EQ(reader.tensors("optimizer").size(), 1u);
  EXPECT_EQ(reader.tensors("optimizer")[0].name, "exp_avg/w");
  EXPECT_TRUE(reader.tensors("state").empty());
}

TEST(CheckpointReaderTest, HolesOverlapsAndContradictionsAreRefused) {
  const SplitTensor w;
  Slice other_shape = w.slice(9, 28);
  other_shape.shape = {7, 4};
  Slice other_dtype = w.slice(9, 28);
  other_dtype.dtype = Dtype::kI32;
  const std::vector<std::vector<Slice>> cases = {
      {w.slice(0, 9)},
      {w.slice(9, 28)},
      {w.slice(0, 9), w.slice(10, 28)},
      {w.slice(0, 9), w.slice(8, 28)},
      {w.slice(0, 28), w.slice(3, 5)},
      {w.slice(0, 9), other_shape},
      {w.slice(0, 9), other_dtype},
  };
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const TemporaryDirectory folder;
    const auto files = make_posix_file_system();
    HandMadeCheckpoint checkpoint(*files, folder.path() / "step_00000009");
    for (std::size_t rank = 0; rank < cases[i].size(); ++rank) {
      checkpoint.add_rank({"model.rank" + std::to_string(rank), {cases[i][rank]}});
    }
    try {
      checkpoint.open();
      ADD_FAILURE() << "case " << i;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kCorrupt) << error.what();
      EXPECT_NE(error.reason().find("w"), std::string::npos);
    }
  }
}

TEST(CheckpointReaderTest, WhatIsNoCheckpointIsSaid) {
  const TemporaryDirectory folder;
  try {
    CheckpointReader reader(folder.path() / "absent");
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kIo);
  }
  try {
    CheckpointReader reader(folder.path());
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kCorrupt);
    EXPECT_NE(error.reason().find("no manifest.json"), std::string::npos);
  }
}

// Two checkpoints, of which tests damage the newer.
struct TwoCheckpoints {
  TwoCheckpoints() {
    CheckpointWriter writer(*files, {folder, 0, 0}, log);
    for (const std::int64_t step : {20, 40}) {
      TestState state(step);
      writer.start(state.request());
      writer.finish();
    }
  }
  // The step that a start finds.
  std::int64_t newest() {
    lines.clear();
    const auto reader = find_newest_checkpoint(*files, folder, log);
    return reader ? reader->step() : -1;
  }

  TemporaryDirectory temporary;
  Path folder = temporary.path() / "checkpoints";
  std::unique_ptr<FileSystem> files = make_posix_file_system();
  std::vector<std::string> lines;
  Log log{LogLevel::kNormal, [this](std::string_view line) { lines.emplace_back(line); }};
};

void overwrite(const Path& path, const std::string& content) {
  const auto files = make_posix_file_system();
  const auto file = files->create(path);
  file->write(content);
  file->close();
}

TEST(CheckpointReaderTest, EveryFlippedBitIsNoticedAndItsFileNamed) {
  TwoCheckpoints run;
  EXPECT_EQ(run.newest(), 40);
  EXPECT_TRUE(run.lines.empty());
  const Path folder = run.folder / "step_00000040";
  std::mt19937 random(5);
  int files = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file()) continue;
    ++files;
    const std::string content = run.files->read(entry.path());
    const std::string name = entry.path().filename().string();
    for (std::size_t place = 0; place < content.size(); place += 1 + random() % 5) {
      std::string flipped = content;
      flipped[place] = static_cast<char>(flipped[place] ^ (1 << (random() % 8)));
      overwrite(entry.path(), flipped);
      if (place % 32 == 0) {  // each fall-back reads both checkpoints
        ASSERT_EQ(run.newest(), 20) << name << " at " << place;
        ASSERT_EQ(run.lines.size(), 1u);
        ASSERT_EQ(run.lines[0].find("warning: step_00000040 skipped: "), 0u) << run.lines[0];
        ASSERT_NE(run.lines[0].find(name + ": "), std::string::npos) << run.lines[0];
      }
      try {
        CheckpointReader reader{folder};
        FAIL() << name << " at " << place;
      } catch (const Error& error) {
        ASSERT_EQ(error.kind(), ErrorKind::kCorrupt);
        ASSERT_NE(error.reason().find(name), std::string::npos) << error.what();
      }
    }
    overwrite(entry.path(), content);
  }
  EXPECT_EQ(files, 9);
  EXPECT_EQ(run.newest(), 40);
}

TEST(CheckpointReaderTest, MissingAndCutFilesAreNoticed) {
  TwoCheckpoints run;
  const Path folder = run.folder / "step_00000040";
  for (const char* name :
       {"model.safetensors", "state.json", "info.json", "manifest.json", "tokenizer/merges.txt"}) {
    const std::string content = run.files->read(folder / name);
    run.files->remove_all(folder / name);
    EXPECT_EQ(run.newest(), 20) << name;
    overwrite(folder / name, content + "x");
    EXPECT_EQ(run.newest(), 20) << name;
    if (!content.empty()) {
      overwrite(folder / name, content.substr(0, content.size() / 2));
      EXPECT_EQ(run.newest(), 20) << name;
    }
    overwrite(folder / name, content);
    EXPECT_EQ(run.newest(), 40) << name;
  }
}

TEST(CheckpointReaderTest, NoneWholeIsAnErrorAndNoneAtAllIsNot) {
  TwoCheckpoints run;
  for (const char* name : {"step_00000020", "step_00000040"})
    overwrite(run.folder / name / "state.json", "");
  try {
    run.newest();
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kCorrupt);
    EXPECT_EQ(run.lines.size(), 2u);
  }
  EXPECT_FALSE(find_newest_checkpoint(*run.files, run.temporary.path() / "absent", run.log));
}

TEST(CatalogTest, OneNameAStep) {
  EXPECT_EQ(checkpoint_name(40), "step_00000040");
  EXPECT_EQ(checkpoint_name(1234567890), "step_1234567890");
  for (const std::int64_t step : {0, 40, 99999999, 100000000, 1234567890}) {
    EXPECT_EQ(checkpoint_step(checkpoint_name(step)), step);
  }
  for (const char* name : {"step_", "step_40", "step_000000040", "step_0000004x", "step_-0000040",
                           "x", "", "step_99999999999999999999", ".step_00000040"}) {
    EXPECT_FALSE(checkpoint_step(name)) << name;
  }
}

}  // namespace
}  // namespace tessera
