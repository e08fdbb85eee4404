#include "base/file_system.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/error.h"
#include "base/temporary_directory.h"

namespace tessera {
namespace {

TEST(FileSystemTest, WritesReadsAndLists) {
  const TemporaryDirectory folder;
  const auto files = make_posix_file_system();
  write_file_atomically(*files, folder.path() / "b", "two");
  write_file_atomically(*files, folder.path() / "a", "one");
  write_file_atomically(*files, folder.path() / "a", "three");
  EXPECT_EQ(files->read(folder.path() / "a"), "three");
  EXPECT_EQ(files->list(folder.path()), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(files->file_size(folder.path() / "b"), 3u);
  EXPECT_GT(files->free_bytes(folder.path() / "not" / "there"), 0u);
}

TEST(FileSystemTest, WritesAtAnyPlace) {
  const TemporaryDirectory folder;
  const auto files = make_posix_file_system();
  const std::string text = "tail";
  auto file = files->create(folder.path() / "a");
  file->write(std::string_view("ab"));
  file->write_at(4, std::as_bytes(std::span(text)));
  file->write(std::string_view("cd"));
  file->close();
  EXPECT_EQ(files->read(folder.path() / "a"), "abcdtail");
}

TEST(FileSystemTest, ALockIsHeldOnceAndFreedWithItsObject) {
  const TemporaryDirectory folder;
  const auto files = make_posix_file_system();
  auto lock = files->try_lock(folder.path() / "lock");
  EXPECT_NE(lock, nullptr);
  EXPECT_EQ(files->try_lock(folder.path() / "lock"), nullptr);
  lock.reset();
  EXPECT_NE(files->try_lock(folder.path() / "lock"), nullptr);
  EXPECT_THROW(files->try_lock(folder.path() / "absent" / "lock"), Error);
}

TEST(FileSystemTest, MissingFileNamesPathAndReason) {
  const auto files = make_posix_file_system();
  try {
    files->read("/nowhere/file");
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kIo);
    EXPECT_NE(std::string(error.what()).find("No such file"), std::string::npos);
    EXPECT_EQ(error.where(), "/nowhere/file");
  }
}

TEST(FileSystemTest, FullDiskIsNamed) {
  if (::access("/dev/full", W_OK) != 0) GTEST_SKIP() << "no /dev/full on this system";
  const auto files = make_posix_file_system();
  auto file = files->create("/dev/full");
  EXPECT_THROW(file->write(std::string_view("x")), Error);
}

TEST(FileSystemTest, MapsFiles) {
  const TemporaryDirectory folder;
  const auto files = make_posix_file_system();
  write_file_atomically(*files, folder.path() / "a", "content");
  write_file_atomically(*files, folder.path() / "empty", "");
  EXPECT_EQ(MappedFile(folder.path() / "a").text(), "content");
  EXPECT_TRUE(MappedFile(folder.path() / "empty").bytes().empty());
  EXPECT_THROW(MappedFile(folder.path()), Error);
}

}  // namespace
}  // namespace tessera
