#include "train/run_folder.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/temporary_directory.h"

namespace tessera {
namespace {

TEST(RunFolderTest, AnOldRunIsMovedAsideNeverOverwritten) {
  const TemporaryDirectory temporary;
  const auto files = make_posix_file_system();
  Log log(LogLevel::kNormal, [](std::string_view) {});
  const RunFolder run(*files, temporary.path() / "run");
  run.move_aside(log);  // nothing there
  for (const char* content : {"first", "second", "third"}) {
    run.move_aside(log);
    run.create();
    run.record(content, environment_json("tessera train x", "2.13.0", "cpu"));
  }
  EXPECT_EQ(files->read(temporary.path() / "run.old-1" / "config.yaml"), "first");
  EXPECT_EQ(files->read(temporary.path() / "run.old-2" / "config.yaml"), "second");
  EXPECT_EQ(files->read(run.dir() / "config.yaml"), "third");
  EXPECT_NE(files->read(run.dir() / "environment.json").find("\"torch\": \"2.13.0\""),
            std::string::npos);
}

TEST(RunFolderTest, OneProcessAtATime) {
  const TemporaryDirectory temporary;
  const auto files = make_posix_file_system();
  Log log(LogLevel::kNormal, [](std::string_view) {});
  const RunFolder run(*files, temporary.path() / "run");
  run.create();
  auto lock = run.lock();
  EXPECT_THROW(static_cast<void>(run.lock()), Error);
  lock.reset();
  EXPECT_NE(run.lock(), nullptr);
  EXPECT_FALSE(run.move_aside(log));  // no run in it yet: it stays
  EXPECT_TRUE(files->exists(run.checkpoints()));
}

TEST(RunFolderTest, APlaceThatCannotHoldItIsAnError) {
  const TemporaryDirectory temporary;
  const auto files = make_posix_file_system();
  write_file_atomically(*files, temporary.path() / "file", "x");
  EXPECT_THROW(RunFolder(*files, temporary.path() / "file").create(), Error);
}

}  // namespace
}  // namespace tessera
