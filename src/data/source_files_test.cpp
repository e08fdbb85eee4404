#include "data/source_files.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/temporary_directory.h"

namespace tessera {
namespace {

class SourceFilesTest : public ::testing::Test {
 protected:
  SourceFilesTest() {
    for (const char* name : {"b.txt", "a.txt", "sub/c.jsonl.gz", "sub/deep/d.TSV", ".hidden.txt",
                             ".git/e.txt", "image.png", "f.csv.zst", "g.tok", "h[1].md"}) {
      const Path path = folder_.path() / name;
      files_->create_directories(path.parent_path());
      files_->create(path)->close();
    }
  }
  std::vector<std::string> find(const std::vector<std::string>& names,
                                DataFormat format = DataFormat::kAuto) {
    std::vector<std::string> entries;
    for (const std::string& name : names) entries.push_back((folder_.path() / name).string());
    std::vector<std::string> result;
    for (const SourceFile& file : find_source_files(entries, format, log_)) {
      result.push_back(file.path.lexically_normal().lexically_relative(folder_.path()).string() +
                       ":" + (file.tokens ? "tok" : std::to_string(static_cast<int>(file.format))));
    }
    return result;
  }
  std::string error(const std::string& name, ErrorKind kind) {
    try {
      find({name});
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), kind) << error.what();
      EXPECT_NE(error.where().find(name), std::string::npos) << error.what();
      return error.what();
    }
    ADD_FAILURE() << "no error for " << name;
    return {};
  }
  using Names = std::vector<std::string>;
  TemporaryDirectory folder_;
  std::unique_ptr<FileSystem> files_ = make_posix_file_system();
  std::vector<std::string> said_;
  Log log_{LogLevel::kNormal, [this](std::string_view line) { said_.emplace_back(line); }};
};

TEST_F(SourceFilesTest, AFolderIsReadInOrderWithoutHiddenFiles) {
  EXPECT_EQ(find({"."}), (Names{"a.txt:1", "b.txt:1", "f.csv.zst:4", "g.tok:tok", "h[1].md:1",
                                "sub/c.jsonl.gz:2", "sub/deep/d.TSV:3"}));
  ASSERT_EQ(said_.size(), 1u);
  EXPECT_NE(said_[0].find("image.png"), std::string::npos) << said_[0];
}

TEST_F(SourceFilesTest, GlobsListsAndAGivenFormat) {
  EXPECT_EQ(find({"*.txt"}), (Names{"a.txt:1", "b.txt:1"}));
  EXPECT_EQ(find({"b.txt", "sub"}), (Names{"b.txt:1", "sub/c.jsonl.gz:2", "sub/deep/d.TSV:3"}));
  EXPECT_EQ(find({"s*"}), (Names{"sub/c.jsonl.gz:2", "sub/deep/d.TSV:3"}));
  EXPECT_EQ(find({"image.png"}, DataFormat::kText), (Names{"image.png:1"}));
  EXPECT_EQ(find({"h[1].md"}), (Names{"h[1].md:1"})) << "a name that is there is no glob";
}

TEST_F(SourceFilesTest, WhatMatchesNothingIsAnError) {
  error("none.txt", ErrorKind::kData);
  error("none*.txt", ErrorKind::kData);
  const std::string unknown = error("image.png", ErrorKind::kConfig);
  EXPECT_NE(unknown.find("data.format"), std::string::npos) << unknown;
  files_->create_directories(folder_.path() / "nothing");
  error("nothing", ErrorKind::kData);
  ASSERT_EQ(::mkfifo((folder_.path() / "pipe.txt").c_str(), 0600), 0);
  EXPECT_NE(error("pipe.txt", ErrorKind::kData).find("regular"), std::string::npos);
}

}  // namespace
}  // namespace tessera
