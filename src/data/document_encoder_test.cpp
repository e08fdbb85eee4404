#include "data/document_encoder.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/temporary_directory.h"
#include "data/document_split.h"
#include "tokenizer/bpe_trainer.h"
#include "tokenizer/byte_tokenizer.h"

namespace tessera {
namespace {

std::string words(std::size_t bytes, std::uint32_t seed = 1) {
  static constexpr const char* kWords[] = {"the ", "cat's ", "won't",  "  ", "\n\n",  "123 ",
                                           "él",   "house ", "runs ",  ". ", "🙂 ", "a",
                                           "'",    "\t",     "great ", "of "};
  std::string text;
  while (text.size() < bytes) {
    seed = seed * 1664525 + 1013904223;
    text += kWords[seed >> 28];
  }
  return text;
}

class EncoderTest : public ::testing::Test {
 protected:
  EncoderTest() {
    BpeTrainer trainer({.vocab_size = 300, .shortfall = Shortfall::kSmaller});
    trainer.add(words(20'000));
    bpe_ = trainer.train();
  }
  using Feed = std::function<void(DocumentSink&)>;
  TokenFile encode(const Feed& feed, EncodeOptions options = {},
                   std::shared_ptr<const Tokenizer> tokenizer = {}) {
    const Path path = folder_.path() / "a.tok";
    if (!tokenizer) tokenizer = bpe_;
    TokenFileWriter writer(*files_, path, static_cast<std::uint64_t>(tokenizer->vocab_size()));
    DocumentEncoder encoder(tokenizer, std::move(options), writer);
    feed(encoder);
    encoder.finish();
    TokenFile file(path);
    file.verify();
    return file;
  }
  static std::vector<TokenId> ids_of(const TokenFile& file) {
    std::vector<TokenId> ids;
    for (std::uint64_t i = 0; i < file.size(); ++i)
      ids.push_back(static_cast<TokenId>(file.token(i)));
    return ids;
  }
  TemporaryDirectory folder_;
  std::unique_ptr<FileSystem> files_ = make_posix_file_system();
  std::shared_ptr<const Tokenizer> bpe_;
};

TEST_F(EncoderTest, ALongDocumentInPartsGivesTheIdsOfTheWhole) {
  const std::string text = words(36'000'000);
  const std::vector<TokenId> expected = bpe_->encode(text, SpecialTokens::kAsText, 2);
  const TokenFile file = encode(
      [&](DocumentSink& sink) {
        sink.text("before", true);
        for (std::size_t at = 0; at < text.size();) {
          std::size_t size = std::min<std::size_t>(3'000'001, text.size() - at);
          while (at + size < text.size() &&
                 (static_cast<unsigned char>(text[at + size]) & 0xC0) == 0x80) {
            ++size;
          }
          sink.text(std::string_view(text).substr(at, size), at + size == text.size());
          at += size;
        }
        sink.text("after", true);
      },
      {.separator = "none", .threads = 2});
  EXPECT_EQ(file.facts().documents, 3u);
  EXPECT_EQ(file.facts().text_bytes, text.size() + 11);
  std::vector<TokenId> whole = bpe_->encode("before");
  EXPECT_EQ(file.document_start(1), whole.size());
  whole.insert(whole.end(), expected.begin(), expected.end());
  EXPECT_EQ(file.document_start(2), whole.size());
  const std::vector<TokenId> after = bpe_->encode("after");
  whole.insert(whole.end(), after.begin(), after.end());
  EXPECT_TRUE(ids_of(file) == whole);
}

TEST_F(EncoderTest, AnyNumberOfThreadsGivesTheSameFile) {
  std::string first;
  for (const int threads : {1, 2, 5}) {
    encode(
        [&](DocumentSink& sink) {
          for (std::uint32_t d = 0; d < 500; ++d) sink.text(words(200 + d * 7, d), true);
          sink.text(words(600'000), true);
        },
        {.threads = threads});
    const std::string bytes = files_->read(folder_.path() / "a.tok");
    if (first.empty()) first = bytes;
    EXPECT_TRUE(bytes == first) << threads;
  }
}

TEST_F(EncoderTest, SeparatorsStandBetweenDocumentsOnly) {
  const Feed feed = [](DocumentSink& sink) {
    sink.text("ab", true);
    sink.ids(std::vector<std::uint32_t>{99, 100}, "x:1");
    sink.text("c", true);
  };
  const std::shared_ptr<const Tokenizer> bytes = make_byte_tokenizer(EndOfText::kAdded);
  const TokenFile with_end = encode(feed, {}, bytes);
  EXPECT_EQ(ids_of(with_end), (std::vector<TokenId>{97, 98, 256, 99, 100, 256, 99}));
  EXPECT_EQ(with_end.document_start(1), 3u);
  EXPECT_EQ(with_end.facts().text_bytes, 5u);
  EXPECT_EQ(with_end.facts().tokenizer_hash, bytes->hash());
  EXPECT_EQ(ids_of(encode(feed, {.separator = "none"}, bytes)),
            (std::vector<TokenId>{97, 98, 99, 100, 99}));
  EXPECT_EQ(ids_of(encode(feed, {.separator = "\n-"}, bytes)),
            (std::vector<TokenId>{97, 98, 10, 45, 99, 100, 10, 45, 99}));
  const std::shared_ptr<const Tokenizer> bare = make_byte_tokenizer(EndOfText::kNone);
  EXPECT_EQ(ids_of(encode(feed, {}, bare)), (std::vector<TokenId>{97, 98, 99, 100, 99}));
}

TEST_F(EncoderTest, SpecialTokensInTextAreTextUnlessAskedFor) {
  const Feed feed = [](DocumentSink& sink) { sink.text("a<|endoftext|>b", true); };
  const std::shared_ptr<const Tokenizer> bytes = make_byte_tokenizer(EndOfText::kAdded);
  EXPECT_EQ(encode(feed, {}, bytes).size(), 15u);
  EXPECT_EQ(ids_of(encode(feed, {.special = SpecialTokens::kParse}, bytes)),
            (std::vector<TokenId>{97, 256, 98}));
}

TEST_F(EncoderTest, IdsThatTheTokenizerLacksAreRefused) {
  try {
    encode([](DocumentSink& sink) { sink.ids(std::vector<std::uint32_t>{5, 9999}, "f.jsonl:7"); });
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kData);
    EXPECT_EQ(error.where(), "f.jsonl:7");
    EXPECT_NE(error.reason().find("9999"), std::string::npos);
  }
}

class Record final : public DocumentSink {
 public:
  void text(std::string_view part, bool last) override {
    log += std::string(part) + (last ? "|" : "+");
  }
  void ids(std::span<const std::uint32_t> ids, std::string_view) override {
    log += "#" + std::to_string(ids.size()) + "|";
  }
  std::string log;
};

TEST(DocumentSplit, CutsAtCharactersInsideDocuments) {
  const auto split = [](std::uint64_t first, std::uint64_t second) {
    Record a, b;
    DocumentSplit sink({{first, &a}, {second, &b}});
    sink.text("né", true);   // 2 characters
    sink.text("€x", false);  // 2
    sink.text("yz", true);   // 2
    sink.ids(std::vector<std::uint32_t>{1, 2, 3}, "");
    sink.text("end", true);  // 3: 12 in all
    return a.log + " / " + b.log;
  };
  EXPECT_EQ(split(12, 0), "né|€x+yz|#3|end| / ");
  EXPECT_EQ(split(0, 12), " / né|€x+yz|#3|end|");
  EXPECT_EQ(split(1, 3), "n| / é|€x+|") << "the rest is dropped";
  EXPECT_EQ(split(2, 10), "né| / €x+yz|#3|end|");
  EXPECT_EQ(split(3, 9), "né|€| / x+yz|#3|end|");
  EXPECT_EQ(split(4, 8), "né|€x+| / yz|#3|end|");
  EXPECT_EQ(split(7, 3), "né|€x+yz|#1| / #2|e|");
  EXPECT_EQ(split(9, 1), "né|€x+yz|#3| / e|");
}

TEST(DocumentSplit, CountsWhatItSplits) {
  DocumentCounter counter;
  counter.text("né", true);
  counter.text("€x", false);
  counter.text("yz", true);
  counter.ids(std::vector<std::uint32_t>{1, 2, 3}, "");
  EXPECT_EQ(counter.length, 9u);
  EXPECT_EQ(counter.documents, 3u);
}

}  // namespace
}  // namespace tessera
