#include "formats/token_file.h"

#include <gtest/gtest.h>

#include <fstream>

#include "base/error.h"
#include "base/temporary_directory.h"

namespace tessera {
namespace {

class TokenFileTest : public ::testing::Test {
 protected:
  TokenFileFacts write(const Path& path, std::uint64_t vocab_size,
                       const std::vector<std::vector<std::uint32_t>>& documents) {
    TokenFileWriter writer(*files_, path, vocab_size);
    for (const auto& ids : documents) {
      writer.begin_document();
      writer.append(ids);
    }
    return writer.finish(123, "c0ffee", "0123456789abcdef0123456789abcdef");
  }
  void store(const Path& path, const std::string& bytes) {
    auto file = files_->create(path);
    file->write(bytes);
    file->close();
  }
  void expect_corrupt(const Path& path, const std::string& part, bool full = false) {
    try {
      const TokenFile file(path);
      if (full) file.verify();
      FAIL() << "expected an error with: " << part;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kCorrupt);
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
      EXPECT_NE(error.where().find(path.string()), std::string::npos);
    }
  }
  TemporaryDirectory folder_;
  std::unique_ptr<FileSystem> files_ = make_posix_file_system();
  const Path path_ = folder_.path() / "a.tok";
};

TEST_F(TokenFileTest, RoundTripsNarrowAndWide) {
  for (const std::uint64_t vocab : {65536, 65537}) {
    write(path_, vocab, {{1, 2, 65535}, {}, {7}});
    const TokenFile file(path_);
    EXPECT_EQ(file.facts().token_bytes, vocab == 65536 ? 2u : 4u);
    EXPECT_EQ(file.size(), 4u);
    EXPECT_EQ(file.facts().documents, 3u);
    EXPECT_EQ(file.facts().text_bytes, 123u);
    EXPECT_EQ(file.facts().vocab_size, vocab);
    EXPECT_EQ(file.facts().content_hash, "c0ffee");
    EXPECT_EQ(file.facts().tokenizer_hash, "0123456789abcdef0123456789abcdef");
    EXPECT_EQ(file.token(2), 65535u);
    std::int64_t ids[3];
    file.read(1, 3, ids);
    EXPECT_EQ(ids[0], 2);
    EXPECT_EQ(ids[1], 65535);
    EXPECT_EQ(ids[2], 7);
    EXPECT_EQ(file.document_start(0), 0u);
    EXPECT_EQ(file.document_start(1), 3u);
    EXPECT_EQ(file.document_start(2), 3u);
    file.verify();
  }
}

TEST_F(TokenFileTest, HasTheDocumentedBytes) {
  write(path_, 1000, {{258, 3}});
  const std::string bytes = files_->read(path_);
  ASSERT_EQ(bytes.size(), 16u + 8 + 8 + 192);
  EXPECT_EQ(bytes.substr(0, 24), std::string("TESSTOK\n\1\0\0\0\2\0\0\0\2\1\3\0\0\0\0\0", 24));
  EXPECT_EQ(bytes.substr(bytes.size() - 16, 8), "TESSEND\n");
}

TEST_F(TokenFileTest, EveryTruncationIsFoundWithoutReadingTheTokens) {
  write(path_, 1000, {{1, 2, 3, 4, 5, 6, 7, 8, 9}});
  const std::string bytes = files_->read(path_);
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    store(path_, bytes.substr(0, size));
    EXPECT_THROW(TokenFile{path_}, Error) << size;
  }
  store(path_, bytes.substr(0, bytes.size() - 1));
  expect_corrupt(path_, "cut off");
  store(path_, "");
  expect_corrupt(path_, "empty");
  store(path_, bytes.substr(0, 20) + bytes.substr(22));
  expect_corrupt(path_, "does not fit");
}

TEST_F(TokenFileTest, EveryFlippedBitIsFoundByVerify) {
  write(path_, 1000, {{1, 2, 3}, {4}});
  const std::string bytes = files_->read(path_);
  for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    std::string changed = bytes;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << bit % 8));
    store(path_, changed);
    EXPECT_THROW(TokenFile(path_).verify(), Error) << "bit " << bit;
  }
  std::string changed = bytes;
  changed[17] ^= 1;
  store(path_, changed);
  expect_corrupt(path_, "checksum", true);
}

TEST_F(TokenFileTest, OtherVersionsAndOtherFilesAreNamed) {
  write(path_, 1000, {{1}});
  std::string bytes = files_->read(path_);
  bytes[8] = 9;
  store(path_, bytes);
  expect_corrupt(path_, "version 9");
  store(path_, "hello, this is a text file");
  expect_corrupt(path_, "does not begin");
}

TEST_F(TokenFileTest, NothingIsVisibleBeforeFinishAndNothingStaysWithoutIt) {
  {
    TokenFileWriter writer(*files_, path_, 10);
    writer.append(std::vector<std::uint32_t>{1});
    EXPECT_FALSE(files_->exists(path_));
    EXPECT_EQ(files_->list(folder_.path()).size(), 1u);
  }
  EXPECT_TRUE(files_->list(folder_.path()).empty());
}

TEST_F(TokenFileTest, IdsOutsideTheVocabularyAreRefused) {
  TokenFileWriter writer(*files_, path_, 10);
  EXPECT_THROW(writer.append(std::vector<std::uint32_t>{10}), Error);
}

TEST_F(TokenFileTest, MissingFileIsAnIoError) {
  try {
    TokenFile file(folder_.path() / "none.tok");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kIo);
  }
}

}  // namespace
}  // namespace tessera
