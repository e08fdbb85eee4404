#include "tokenizer/bpe_tokenizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "tokenizer/bpe_trainer.h"

namespace tessera {
namespace {

std::unique_ptr<BpeTokenizer> license_tokenizer(std::int64_t size = 700) {
  BpeTrainer trainer({.vocab_size = size, .special_tokens = {"<|user|>", "<|user|>!"}});
  trainer.add(MappedFile(Path(TESSERA_SOURCE_DIR) / "LICENSE").text());
  return trainer.train();
}

// A word of the letters that merges of the licence are made of, and now and then any byte.
std::string random_word(std::mt19937& random, std::size_t length) {
  std::string word;
  for (std::size_t i = 0; i < length; ++i) {
    word += random() % 40 == 0 ? static_cast<char>(random() & 255) : "etaoinsrhl "[random() % 11];
  }
  return word;
}

// The definition: merge the leftmost pair of lowest rank until there is none.
std::vector<TokenId> merge_by_the_book(const Tokenizer& tokenizer, std::string_view piece) {
  std::vector<TokenId> ids;
  for (const char byte : piece) {
    for (TokenId id = 0; id < 256; ++id) {
      if (tokenizer.token_bytes(id) == std::string_view(&byte, 1)) ids.push_back(id);
    }
  }
  while (true) {
    std::size_t best_rank = tokenizer.merges().size(), best = 0;
    for (std::size_t i = 0; i + 1 < ids.size(); ++i) {
      for (std::size_t rank = 0; rank < best_rank; ++rank) {
        const TokenMerge& merge = tokenizer.merges()[rank];
        if (merge.left == ids[i] && merge.right == ids[i + 1]) best_rank = rank, best = i;
      }
    }
    if (best_rank == tokenizer.merges().size()) return ids;
    ids[best] = tokenizer.merges()[best_rank].merged;
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
}

std::unique_ptr<BpeMerger> merger_of(const Tokenizer& tokenizer) {
  std::array<TokenId, 256> byte_ids{};
  for (TokenId id = 0; id < 256; ++id) {
    byte_ids[static_cast<unsigned char>(tokenizer.token_bytes(id)[0])] = id;
  }
  return std::make_unique<BpeMerger>(byte_ids, tokenizer.merges());
}

TEST(BpeMergerTest, ShortAndLongPiecesFollowTheDefinition) {
  const auto tokenizer = license_tokenizer(500);
  const auto merger = merger_of(*tokenizer);
  std::mt19937 random(11);
  for (int round = 0; round < 300; ++round) {
    const std::string piece = random_word(random, 1 + random() % (BpeMerger::kShort + 60));
    std::vector<TokenId> ids;
    merger->append(piece, ids);
    ASSERT_EQ(ids, merge_by_the_book(*tokenizer, piece)) << piece;
  }
}

TEST(BpeTokenizerTest, AMegabyteWithoutABreakTakesNoQuadraticTime) {
  const auto tokenizer = license_tokenizer();
  std::mt19937 random(12);
  std::string letters(1 << 20, 'x');
  for (char& letter : letters) letter = "etaoinsrhl"[random() % 10];
  for (const std::string& text : {std::string(1 << 20, 'a'), std::string(1 << 20, ' '), letters}) {
    const auto start = std::chrono::steady_clock::now();
    const std::vector<TokenId> ids = tokenizer->encode(text);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    EXPECT_EQ(tokenizer->decode(ids), text);
    EXPECT_LT(seconds.count(), 10);  // under a sanitizer too; the quadratic way takes minutes
  }
}

TEST(BpeTokenizerTest, AnyBytesRoundTripAndThreadsGiveTheSameIds) {
  const auto tokenizer = license_tokenizer();
  std::mt19937 random(13);
  for (const bool invalid : {false, true}) {
    std::string text;
    while (text.size() < 400000) {
      text += random_word(random, random() % 30);
      if (invalid) text += static_cast<char>(random() & 255);
      if (random() % 50 == 0) text += "<|user|>";
      if (random() % 50 == 0) text += "<|user|>!<|endoftext|>'s  \n";
      if (random() % 400 == 0) text += std::string(random() % 3000, random() % 2 == 0 ? ' ' : 'e');
    }
    for (const SpecialTokens special : {SpecialTokens::kAsText, SpecialTokens::kParse}) {
      const std::vector<TokenId> ids = tokenizer->encode(text, special);
      EXPECT_EQ(tokenizer->decode(ids), text);
      for (const int threads : {2, 3, 8}) EXPECT_EQ(tokenizer->encode(text, special, threads), ids);
    }
  }
}

TEST(BpeTokenizerTest, OneObjectServesSeveralThreads) {
  const auto tokenizer = license_tokenizer();
  const std::string text(MappedFile(Path(TESSERA_SOURCE_DIR) / "LICENSE").text());
  const std::vector<TokenId> ids = tokenizer->encode(text);
  std::vector<std::vector<TokenId>> results(4);
  std::vector<std::thread> threads;
  for (auto& result : results) threads.emplace_back([&] { result = tokenizer->encode(text); });
  for (std::thread& thread : threads) thread.join();
  for (const auto& result : results) EXPECT_EQ(result, ids);
}

TEST(BpeTokenizerTest, SpecialTokensAreTextUnlessAskedFor) {
  const auto tokenizer = license_tokenizer();
  const TokenId end = *tokenizer->end_of_text();
  EXPECT_GT(tokenizer->encode("<|endoftext|>").size(), 1U);
  EXPECT_EQ(tokenizer->encode("<|endoftext|>", SpecialTokens::kParse), std::vector<TokenId>{end});
  EXPECT_EQ(tokenizer->encode("<|user|>!", SpecialTokens::kParse), std::vector<TokenId>{end - 1});
  const auto mixed = tokenizer->encode("a<|user|> b<|user", SpecialTokens::kParse);
  EXPECT_EQ(std::ranges::count(mixed, end - 2), 1);
  EXPECT_EQ(tokenizer->decode(mixed), "a<|user|> b<|user");
}

TEST(BpeTokenizerTest, AddedWordsAreFoundWhateverThePolicy) {
  BpeModel model;
  for (int byte = 0; byte < 256; ++byte) model.tokens.emplace_back(1, static_cast<char>(byte));
  model.tokens.resize(260);  // gaps
  model.tokens.emplace_back("word");
  model.special_tokens.push_back({.text = "word", .id = 260, .always_parsed = true});
  const BpeTokenizer tokenizer(model);
  EXPECT_EQ(tokenizer.encode("aword"), (std::vector<TokenId>{'a', 260}));
  EXPECT_EQ(tokenizer.vocab_size(), 261);
  EXPECT_FALSE(tokenizer.is_token(258));
  EXPECT_THROW(tokenizer.token_bytes(258), Error);
  EXPECT_THROW(tokenizer.token_bytes(261), Error);
  EXPECT_THROW(tokenizer.token_bytes(-1), Error);
}

TEST(BpeTokenizerTest, AMissingByteIsNamedWithItsPlace) {
  BpeModel model;
  for (int byte = 0; byte < 256; ++byte)
    model.tokens.emplace_back(byte == 'q' ? 0 : 1, static_cast<char>(byte));
  const BpeTokenizer tokenizer(model);
  EXPECT_EQ(tokenizer.encode("abc").size(), 3U);
  try {
    tokenizer.encode("abq");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kData);
    EXPECT_NE(std::string(error.what()).find("0x71"), std::string::npos) << error.what();
    EXPECT_EQ(error.where(), "byte 2 of the text");
  }
}

}  // namespace
}  // namespace tessera
