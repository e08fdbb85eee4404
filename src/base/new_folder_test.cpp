#include "base/new_folder.h"

#include <gtest/gtest.h>

#include "base/temporary_directory.h"

namespace tessera {
namespace {

class NewFolderTest : public ::testing::Test {
 protected:
  TemporaryDirectory temporary_;
  std::unique_ptr<FileSystem> files_ = make_posix_file_system();
  Path old_ = temporary_.path(), deep_ = old_ / "a" / "b";
};

TEST_F(NewFolderTest, WhatItMadeAndStaysEmptyGoesAway) {
  {
    const NewFolder folder(*files_, deep_);
    EXPECT_TRUE(files_->is_directory(deep_));
  }
  EXPECT_FALSE(files_->exists(old_ / "a"));
  EXPECT_TRUE(files_->is_directory(old_));
}

TEST_F(NewFolderTest, AFolderWithContentStaysWithThoseAbove) {
  {
    const NewFolder folder(*files_, deep_);
    write_file_atomically(*files_, deep_ / "result", "1");
  }
  EXPECT_EQ(files_->read(deep_ / "result"), "1");
}

TEST_F(NewFolderTest, AnEmptyFolderOfSomebodyElseStays) {
  files_->create_directories(old_ / "a");
  { const NewFolder folder(*files_, deep_ / ""); }
  EXPECT_TRUE(files_->is_directory(old_ / "a"));
  EXPECT_FALSE(files_->exists(deep_));
}

}  // namespace
}  // namespace tessera
