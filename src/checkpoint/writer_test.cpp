#include "checkpoint/writer.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "base/error.h"
#include "base/temporary_directory.h"
#include "checkpoint/catalog.h"
#include "checkpoint/test_state.h"

namespace tessera {
namespace {

// A run's folder on the real file system, and what the log says.
struct RunFolder {
  TemporaryDirectory temporary;
  std::unique_ptr<FileSystem> files = make_posix_file_system();
  std::vector<std::string> lines;
  Log log{LogLevel::kNormal, [this](std::string_view line) { lines.emplace_back(line); }};
  Path folder = temporary.path() / "run" / "checkpoints";

  CheckpointWriterOptions options(int keep = 0) const { return {folder, keep, 1 << 20}; }

  void save(CheckpointWriter& writer, std::int64_t step,
            std::optional<double> best_loss = {}) const {
    TestState state(step);
    CheckpointRequest request = state.request();
    request.best_loss = best_loss;
    writer.start(std::move(request));
    const auto finished = writer.finish();
    ASSERT_EQ(finished.size(), 1u);
    EXPECT_EQ(finished[0].step, step);
    EXPECT_EQ(finished[0].path, folder / checkpoint_name(step));
  }

  std::vector<std::string> visible() { return files->list(folder); }
};

TEST(CheckpointWriterTest, ReadsBackWhatWasSaved) {
  RunFolder run;
  {
    CheckpointWriter writer(*run.files, run.options(), run.log);
    run.save(writer, 40);
    EXPECT_FALSE(writer.in_flight());
  }
  const CheckpointReader reader(run.folder / "step_00000040");
  EXPECT_EQ(TestState(40).difference(reader), "");
  EXPECT_EQ(reader.world_size(), 1);
  EXPECT_NE(reader.info_json().find("\"host\": \"here\""), std::string_view::npos);
  EXPECT_EQ(reader.files(),
            (std::vector<std::string>{"config.json", "config.yaml", "info.json", "state.json",
                                      "tokenizer/merges.txt", "tokenizer/vocab.json"}));
  // As Hugging Face would read it.
  const SafetensorsModel model(run.folder / "step_00000040");
  ASSERT_TRUE(model.find("h.1.weight"));
  EXPECT_EQ(model.find("h.1.weight")->info->shape, (std::vector<std::int64_t>{3, 5}));
}

TEST(CheckpointWriterTest, EqualStatesGiveEqualFilesButForInfo) {
  RunFolder one, two;
  for (RunFolder* run : {&one, &two}) {
    CheckpointWriter writer(*run->files, run->options(), run->log);
    run->save(writer, 3);
  }
  for (const char* name :
       {"model.safetensors", "optimizer.safetensors", "state.json", "manifest.json"}) {
    EXPECT_EQ(one.files->read(one.folder / "step_00000003" / name),
              two.files->read(two.folder / "step_00000003" / name))
        << name;
  }
}

TEST(CheckpointWriterTest, TrainingGoesOnWhileItWrites) {
  RunFolder run;
  CheckpointWriter writer(*run.files, run.options(), run.log);
  TestState state(7, 20000);  // tensors of some hundred KB
  writer.start(state.request());
  for (int region = 0; region < TestState::kRegions; ++region) {
    writer.before_update(region);
    for (std::size_t i = 0; i < state.size(); ++i) {
      if (state.region(i) != region) continue;
      for (float& value : state.values(i)) value = -1;
    }
  }
  writer.finish();
  EXPECT_EQ(TestState(7, 20000).difference(CheckpointReader(run.folder / "step_00000007")), "");
}

TEST(CheckpointWriterTest, KeepsTheNewestAndTheBest) {
  RunFolder run;
  CheckpointWriter writer(*run.files, run.options(2), run.log);
  run.save(writer, 1);
  run.save(writer, 2, 3.5);
  run.save(writer, 3);
  run.save(writer, 4);
  EXPECT_EQ(run.visible(), (std::vector<std::string>{".lock", "best.json", "step_00000002",
                                                     "step_00000003", "step_00000004"}));
  auto best = best_checkpoint(*run.files, run.folder, run.log);
  ASSERT_TRUE(best);
  EXPECT_EQ(best->step, 2);
  EXPECT_EQ(best->loss, 3.5);
  writer.mark_best(4, 3.25);
  writer.protect({3});
  run.save(writer, 5);
  run.save(writer, 6);
  EXPECT_EQ(run.visible(),
            (std::vector<std::string>{".lock", "best.json", "step_00000003", "step_00000004",
                                      "step_00000005", "step_00000006"}));
  EXPECT_EQ(best_checkpoint(*run.files, run.folder, run.log)->step, 4);
  EXPECT_THROW(writer.mark_best(99, 1.0), Error);
  EXPECT_TRUE(run.lines.empty()) << run.lines[0];
}

TEST(CheckpointWriterTest, ADamagedRecordOfTheBestStopsRemovalAndIsSaid) {
  RunFolder run;
  CheckpointWriter writer(*run.files, run.options(1), run.log);
  run.save(writer, 1, 2.0);
  std::string text = run.files->read(run.folder / "best.json");
  text[10] ^= 1;
  write_file_atomically(*run.files, run.folder / "best.json", text);
  run.save(writer, 2);
  run.save(writer, 3);
  EXPECT_EQ(list_checkpoints(*run.files, run.folder).size(), 3u);
  EXPECT_FALSE(best_checkpoint(*run.files, run.folder, run.log));
  EXPECT_EQ(run.lines.size(), 3u);
  run.save(writer, 4, 1.0);
  EXPECT_EQ(list_checkpoints(*run.files, run.folder).size(), 1u);
}

TEST(CheckpointWriterTest, LaterStepsFromBeforeAReturnNeitherCountNorGo) {
  RunFolder run;
  CheckpointWriter writer(*run.files, run.options(2), run.log);
  for (const std::int64_t step : {50, 60, 20, 30, 40}) run.save(writer, step);
  std::vector<std::int64_t> steps;
  for (const auto& entry : list_checkpoints(*run.files, run.folder)) steps.push_back(entry.step);
  EXPECT_EQ(steps, (std::vector<std::int64_t>{30, 40, 50, 60}));
}

TEST(CheckpointWriterTest, ReplacesACheckpointOfTheSameStep) {
  RunFolder run;
  CheckpointWriter writer(*run.files, run.options(), run.log);
  run.save(writer, 5);
  write_file_atomically(*run.files, run.folder / "step_00000005" / "model.safetensors", "damaged");
  EXPECT_THROW(CheckpointReader(run.folder / "step_00000005"), Error);
  run.save(writer, 5);
  EXPECT_EQ(TestState(5).difference(CheckpointReader(run.folder / "step_00000005")), "");
  EXPECT_EQ(run.visible(), (std::vector<std::string>{".lock", "step_00000005"}));
}

TEST(CheckpointWriterTest, AnOpenCheckpointOutlivesItsFolder) {
  RunFolder run;
  CheckpointWriter writer(*run.files, run.options(1), run.log);
  run.save(writer, 1);
  const CheckpointReader reader(run.folder / "step_00000001");
  run.save(writer, 2);
  EXPECT_FALSE(run.files->exists(run.folder / "step_00000001"));
  EXPECT_EQ(TestState(1).difference(reader), "");
}

TEST(CheckpointWriterTest, RefusesASecondWriterAndClearsUpAfterADeadOne) {
  RunFolder run;
  {
    CheckpointWriter writer(*run.files, run.options(), run.log);
    EXPECT_THROW(CheckpointWriter(*run.files, run.options(), run.log), Error);
    run.save(writer, 1);
  }
  run.files->create_directories(run.folder / ".step_00000002.partial" / "tokenizer");
  run.files->create_directories(run.folder / ".step_00000000.removing");
  run.files->rename(run.folder / "step_00000001", run.folder / ".step_00000001.replaced");
  EXPECT_EQ(find_newest_checkpoint(*run.files, run.folder, run.log)->step(), 1);
  CheckpointWriter writer(*run.files, run.options(), run.log);
  EXPECT_EQ(run.visible(), (std::vector<std::string>{".lock", "step_00000001"}));
}

TEST(CheckpointWriterTest, ContradictionsAreRefusedAtOnce) {
  RunFolder run;
  CheckpointWriter writer(*run.files, run.options(), run.log);
  TestState state(1);
  const auto expect_refused = [&](auto change) {
    CheckpointRequest request = state.request();
    change(request);
    EXPECT_THROW(writer.start(std::move(request)), Error);
    EXPECT_FALSE(writer.in_flight());
  };
  expect_refused([](auto& r) { r.groups[0].slices.push_back(r.groups[1].slices[0]); });
  expect_refused([](auto& r) { r.groups[0].slices[0].end += 1; });
  expect_refused([](auto& r) { r.groups[0].slices[0].data = nullptr; });
  expect_refused([](auto& r) { r.groups[1].stem = "model"; });
  expect_refused([](auto& r) { r.groups[1].stem = "../model"; });
  expect_refused([](auto& r) { r.files.push_back({"manifest.json", ""}); });
  expect_refused([](auto& r) { r.files.push_back({"/etc/passwd", ""}); });
  expect_refused([](auto& r) { r.step = -1; });
  writer.start(state.request());
  EXPECT_EQ(writer.finish().size(), 1u);
}

TEST(CheckpointWriterTest, MissingSpaceIsForeseen) {
  RunFolder run;
  try {
    require_free_space(*run.files, run.folder, std::uint64_t{1} << 62);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kIo);
    EXPECT_NE(error.reason().find("4611686018427387904"), std::string::npos);
  }
}

TEST(CheckpointWriterTest, GivesUpAtItsEnd) {
  RunFolder run;
  TestState state(1, 200000);
  { CheckpointWriter(*run.files, run.options(), run.log).start(state.request()); }
  for (const std::string& name : run.visible())
    EXPECT_TRUE(name == ".lock" || name == "step_00000001") << name;
}

}  // namespace
}  // namespace tessera
