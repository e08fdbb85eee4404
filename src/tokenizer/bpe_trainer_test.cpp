#include "tokenizer/bpe_trainer.h"

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "tokenizer/byte_alphabet.h"
#include "tokenizer/split_pattern.h"

namespace tessera {
namespace {

std::string license_text() {
  return std::string(MappedFile(Path(TESSERA_SOURCE_DIR) / "LICENSE").text());
}

std::vector<std::string> spelled_merges(const Tokenizer& tokenizer) {
  std::vector<std::string> lines;
  for (const TokenMerge& merge : tokenizer.merges()) {
    lines.push_back(to_byte_alphabet(tokenizer.token_bytes(merge.left)) + " " +
                    to_byte_alphabet(tokenizer.token_bytes(merge.right)));
  }
  return lines;
}

TEST(BpeTrainerTest, MergesAreThoseOfHuggingFace) {
  std::ifstream file(Path(TESSERA_SOURCE_DIR) / "src/tokenizer/testdata/hugging_face_merges.txt");
  std::vector<std::string> expected;
  for (std::string line; std::getline(file, line);) expected.push_back(line);
  ASSERT_EQ(expected.size(), 600U);
  BpeTrainer trainer({.vocab_size = 256 + 600 + 1});
  trainer.add(license_text());
  const auto tokenizer = trainer.train();
  EXPECT_EQ(spelled_merges(*tokenizer), expected);
  EXPECT_EQ(tokenizer->vocab_size(), 857);
  EXPECT_EQ(tokenizer->end_of_text(), 856);
  EXPECT_EQ(tokenizer->token_bytes(856), "<|endoftext|>");
  EXPECT_EQ(tokenizer->token_bytes(0), "!");
}

// The definition: count all pairs anew for every merge.
std::vector<std::string> train_by_counting(std::string_view text, std::size_t merges) {
  std::vector<std::vector<std::string>> words;
  const char* const end = text.data() + text.size();
  for (const char* at = text.data(); at < end;) {
    const char* const behind = end_of_piece(at, end);
    words.emplace_back();
    for (; at < behind; ++at) words.back().emplace_back(1, *at);
  }
  std::map<std::string, int> ids;
  for (const unsigned char byte : byte_alphabet_order()) {
    ids.emplace(std::string(1, static_cast<char>(byte)), static_cast<int>(ids.size()));
  }
  std::vector<std::string> lines;
  while (lines.size() < merges) {
    std::map<std::pair<int, int>, int> counts;
    for (const auto& word : words) {
      for (std::size_t i = 0; i + 1 < word.size(); ++i) ++counts[{ids[word[i]], ids[word[i + 1]]}];
    }
    std::pair<int, int> best;
    int most = 1;
    for (const auto& [pair, count] : counts) {
      if (count > most) best = pair, most = count;
    }
    if (most < 2) break;
    std::string left, right;
    for (const auto& [token, id] : ids) {
      if (id == best.first) left = token;
      if (id == best.second) right = token;
    }
    ids.emplace(left + right, static_cast<int>(ids.size()));
    lines.push_back(to_byte_alphabet(left) + " " + to_byte_alphabet(right));
    for (auto& word : words) {
      for (std::size_t i = 0; i + 1 < word.size(); ++i) {
        if (word[i] != left || word[i + 1] != right) continue;
        word[i] += right;
        word.erase(word.begin() + static_cast<std::ptrdiff_t>(i) + 1);
      }
    }
  }
  return lines;
}

TEST(BpeTrainerTest, AgreesWithCountingAnewOnRandomTexts) {
  std::mt19937 random(7);
  for (int round = 0; round < 60; ++round) {
    std::string text;
    const std::size_t length = 20 + random() % 400;
    for (std::size_t i = 0; i < length; ++i) text += "aaabbc d"[random() % 8];
    BpeTrainer trainer({.vocab_size = 256 + 40 + 1, .shortfall = Shortfall::kSmaller});
    trainer.add(text);
    const auto tokenizer = trainer.train();
    std::vector<std::string> expected = train_by_counting(text, 60);
    const std::vector<std::string> merges = spelled_merges(*tokenizer);
    ASSERT_LE(merges.size(), expected.size());
    expected.resize(merges.size());
    ASSERT_EQ(merges, expected) << text;
  }
}

TEST(BpeTrainerTest, ResultDoesNotDependOnThreadsOrTheOrderOfTexts) {
  std::mt19937 random(5);
  std::string text;
  for (int i = 0; i < 300000; ++i) {
    text += std::string(1 + random() % 3, static_cast<char>('a' + random() % 7));
    if (random() % 4 == 0) text += random() % 9 == 0 ? "\n" : " ";
  }
  const auto train = [&](int threads, bool reversed) {
    BpeTrainer trainer({.vocab_size = 600, .threads = threads});
    if (reversed) trainer.add("some other words\n");
    trainer.add(text);
    if (!reversed) trainer.add("some other words\n");
    return trainer.train()->hash();
  };
  const std::string hash = train(1, false);
  EXPECT_EQ(train(4, false), hash);
  EXPECT_EQ(train(3, true), hash);
}

TEST(BpeTrainerTest, LongRunsTakeNoQuadraticTime) {
  BpeTrainer trainer({.vocab_size = 272, .shortfall = Shortfall::kSmaller});
  trainer.add(std::string(1 << 20, 'a'));
  const auto tokenizer = trainer.train();
  EXPECT_EQ(tokenizer->vocab_size(), 272);
  EXPECT_EQ(tokenizer->encode(std::string(1 << 15, 'a')).size(), 1U);
}

void expect_error(ErrorKind kind, const std::string& part, const BpeTrainingOptions& options,
                  const std::string& text) {
  try {
    BpeTrainer trainer(options);
    trainer.add(text);
    trainer.train();
    ADD_FAILURE() << "no error: " << part;
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

TEST(BpeTrainerTest, ErrorsSayWhatWouldDo) {
  expect_error(ErrorKind::kConfig, "need 257", {.vocab_size = 256}, "abc");
  expect_error(ErrorKind::kConfig, "need 259",
               {.vocab_size = 258, .special_tokens = {"<a>", "<b>"}}, "abc");
  expect_error(ErrorKind::kData, "the text is empty", {.vocab_size = 300}, "");
  expect_error(ErrorKind::kData, "Ask for 258 or less", {.vocab_size = 300}, "ab ab");
  for (const char* bad : {"", "a", "\xFF", "<|endoftext|>"}) {
    expect_error(ErrorKind::kConfig, "special token", {.vocab_size = 300, .special_tokens = {bad}},
                 "abc");
  }
  expect_error(ErrorKind::kConfig, "given twice",
               {.vocab_size = 300, .special_tokens = {"<a>", "<a>"}}, "abc");
}

TEST(BpeTrainerTest, SpecialTokensComeLastAndAreNeverLearned) {
  BpeTrainer trainer(
      {.vocab_size = 264, .special_tokens = {"<s>", "the"}, .shortfall = Shortfall::kSmaller});
  trainer.add("the the the the other other other");
  const auto tokenizer = trainer.train();
  const TokenId end = *tokenizer->end_of_text();
  EXPECT_EQ(end, tokenizer->vocab_size() - 1);
  EXPECT_EQ(tokenizer->token_bytes(end - 1), "the");
  EXPECT_EQ(tokenizer->token_bytes(end - 2), "<s>");
  for (const TokenMerge& merge : tokenizer->merges())
    EXPECT_NE(tokenizer->token_bytes(merge.merged), "the");
  EXPECT_EQ(tokenizer->encode("<s>the", SpecialTokens::kParse),
            (std::vector<TokenId>{end - 2, end - 1}));
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("<s>the")), "<s>the");
}

}  // namespace
}  // namespace tessera
