// GPT-2's own files and published ids, from the shared data.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/temporary_directory.h"
#include "tokenizer/tokenizer.h"

namespace tessera {
namespace {

const Path kShared = TESSERA_SHARED_DATA;

class Gpt2FixtureTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(kShared / "gpt2" / "vocab.bpe")) {
      GTEST_SKIP() << "the shared data are not at " << kShared;
    }
    tokenizer_ = load_tokenizer(kShared / "gpt2");
  }
  std::unique_ptr<Tokenizer> tokenizer_;
};

TEST_F(Gpt2FixtureTest, FixturesEncodeExactlyAndDecodeByteForByte) {
  std::size_t cases = 0;
  for (const char* name : {"gpt2_tokens.jsonl", "gpt2_tokens_disputed.jsonl"}) {
    std::ifstream file(kShared / "gpt2" / name);
    for (std::string line; std::getline(file, line); ++cases) {
      const auto json = nlohmann::json::parse(line);
      const auto text = json["text"].get<std::string>();
      const auto ids = json["ids"].get<std::vector<TokenId>>();
      EXPECT_EQ(tokenizer_->encode(text), ids) << line;
      EXPECT_EQ(tokenizer_->decode(ids), text) << line;
    }
  }
  EXPECT_EQ(cases, 746U);
}

TEST_F(Gpt2FixtureTest, VocabularyIsThatOfGpt2) {
  EXPECT_EQ(tokenizer_->kind(), "bpe");
  EXPECT_EQ(tokenizer_->vocab_size(), 50257);
  EXPECT_EQ(tokenizer_->end_of_text(), 50256);
  EXPECT_EQ(tokenizer_->merges().size(), 50000U);
  EXPECT_EQ(tokenizer_->merges()[0].merged, 256);
  EXPECT_EQ(tokenizer_->token_bytes(256), " t");
  ASSERT_EQ(tokenizer_->special_tokens().size(), 1U);
}

// The system's sha256sum, so that the check shares nothing with this program.
std::string sha256_of(const std::string& bytes) {
  const TemporaryDirectory directory;
  const Path path = directory.path() / "ids";
  std::ofstream(path, std::ios::binary) << bytes;
  const std::string command = "sha256sum " + path.string();
  FILE* pipe = popen(command.c_str(), "r");
  char digest[65] = {};
  const bool read = pipe != nullptr && std::fread(digest, 1, 64, pipe) == 64;
  if (pipe != nullptr) pclose(pipe);
  return read ? digest : "sha256sum cannot be run";
}

std::string read_text(const Path& path) {
  if (path.extension() != ".gz") return std::string(MappedFile(path).text());
  FILE* pipe = popen(("gzip -dc " + path.string()).c_str(), "r");
  std::string text;
  char buffer[65536];
  for (std::size_t size;
       pipe != nullptr && (size = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;) {
    text.append(buffer, size);
  }
  if (pipe != nullptr) pclose(pipe);
  return text;
}

struct Corpus {
  const char* file;
  std::size_t count;
  const char* sha256;  // of the ids as little-endian uint16
};

TEST_F(Gpt2FixtureTest, WholeCorporaGiveThePublishedIdsOnAnyNumberOfThreads) {
  const Corpus corpora[] = {{"wikitext2/wiki.valid.raw", 249887,
                             "ba1fa893453dd6e475c337fb524923709f08be0548dbe27a1fce438b65eab9d8"},
                            {"wikitext2/wiki.test.raw", 286221,
                             "7fead09117d65b366de16befafc09887aadaf1bb457f5292ce3bb89f83e929d6"},
                            {"wikitext2/wiki.valid.tokens", 258659,
                             "17bc83b54d943c68889ab3b9cb01f17b86fe0216e9738ee39806d2631aac2ef9"},
                            {"wikitext2/wiki.test.tokens", 295877,
                             "33d3634d89dfb45a09164ac72a5e7939b90eeffce49f82cc738dc5dbc652cf3c"},
                            {"wikitext2/wiki.train.tokens.gz", 2448382,
                             "6f6e4b8e337e6ca2543efc87c8ab83441094e4f66dc4e9cc806c40c8d2444bf5"},
                            {"tinyshakespeare.txt", 338025,
                             "25c01b32b32f41897a6359dd222ec114992dc30c357bcafbfe6c56672f76cd31"}};
  for (const Corpus& corpus : corpora) {
    const std::string text = read_text(kShared / corpus.file);
    const std::vector<TokenId> ids = tokenizer_->encode(text);
    EXPECT_EQ(ids.size(), corpus.count) << corpus.file;
    std::string bytes;
    for (const TokenId id : ids) {
      bytes += static_cast<char>(id & 255);
      bytes += static_cast<char>(id >> 8);
    }
    EXPECT_EQ(sha256_of(bytes), corpus.sha256) << corpus.file;
    EXPECT_EQ(tokenizer_->decode(ids), text) << corpus.file;
    EXPECT_EQ(tokenizer_->encode(text, SpecialTokens::kAsText, 3), ids) << corpus.file;
  }
}

TEST_F(Gpt2FixtureTest, EveryLayoutHasTheSameHashAndIds) {
  const TemporaryDirectory directory;
  const auto files = make_posix_file_system();
  tokenizer_->save(*files, directory.path());
  const auto from_json = load_tokenizer(directory.path());
  EXPECT_EQ(from_json->hash(), tokenizer_->hash());
  EXPECT_EQ(from_json->encode("Hello world's"), tokenizer_->encode("Hello world's"));
  std::filesystem::remove(directory.path() / "tokenizer.json");
  EXPECT_EQ(load_tokenizer(directory.path())->hash(), tokenizer_->hash());
}

}  // namespace
}  // namespace tessera
