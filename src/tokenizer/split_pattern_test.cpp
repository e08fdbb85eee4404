#include "tokenizer/split_pattern.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "tokenizer/unicode_classes.h"

namespace tessera {
namespace {

using Pieces = std::vector<std::string>;

Pieces split(std::string_view text) {
  Pieces pieces;
  const char* const end = text.data() + text.size();
  for (const char* at = text.data(); at < end;) {
    const char* const behind = end_of_piece(at, end);
    pieces.emplace_back(at, behind);
    at = behind;
  }
  return pieces;
}

// The pattern as a backtracking matcher reads it, alternative by alternative, on decoded
// characters.
Pieces split_by_the_book(std::string_view text) {
  struct Char {
    std::string bytes;
    CharClass value;
  };
  std::vector<Char> chars;
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint point = decode_code_point(text.data() + at, text.data() + text.size());
    chars.push_back({std::string(text.substr(at, point.length)), class_of(point)});
    at += point.length;
  }
  const auto run = [&](std::size_t at, CharClass value) {
    std::size_t length = 0;
    while (at + length < chars.size() && chars[at + length].value == value) ++length;
    return length;
  };
  const auto literal = [&](std::size_t at, std::string_view word) {
    for (std::size_t i = 0; i < word.size(); ++i) {
      if (at + i >= chars.size() || chars[at + i].bytes != word.substr(i, 1)) return false;
    }
    return true;
  };
  const auto match = [&](std::size_t at) -> std::size_t {
    for (const std::string_view word : {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"}) {
      if (literal(at, word)) return word.size();
    }
    for (const CharClass value : {CharClass::kLetter, CharClass::kNumber, CharClass::kOther}) {
      const std::size_t blank = chars[at].bytes == " " ? 1 : 0;
      if (const std::size_t length = run(at + blank, value)) return blank + length;
      if (const std::size_t length = run(at, value)) return length;
    }
    const std::size_t white = run(at, CharClass::kSpace);
    for (std::size_t length = white; length > 0; --length) {
      const bool at_end = at + length == chars.size();
      if (at_end || chars[at + length].value == CharClass::kSpace) return length;
    }
    return white;
  };
  Pieces pieces;
  for (std::size_t at = 0; at < chars.size();) {
    const std::size_t length = match(at);
    std::string piece;
    for (std::size_t i = 0; i < length; ++i) piece += chars[at + i].bytes;
    pieces.push_back(piece);
    at += length;
  }
  return pieces;
}

// Texts in which every rule of the pattern is near every other.
std::string random_text(std::mt19937& random, std::size_t most) {
  static const char* const kParts[] = {" ",
                                       " ",
                                       "  ",
                                       "\n",
                                       "\t",
                                       "\xC2\x85",
                                       "\xE3\x80\x80",
                                       "\xC2\xA0",
                                       "'",
                                       "s",
                                       "t",
                                       "re",
                                       "ve",
                                       "ll",
                                       "d",
                                       "m",
                                       "'S",
                                       "a",
                                       "Z",
                                       "\xC3\xA9",
                                       "\xE4\xB8\xAD",
                                       "0",
                                       "9",
                                       "\xC2\xBD",
                                       "\xD9\xA1",
                                       ".",
                                       "-",
                                       "\xEF\xBB\xBF",
                                       "!",
                                       "\x1C",
                                       "\xF0\x9F\x99\x82",
                                       "\xF0\x9D\x9F\x98",
                                       "\x80",
                                       "\xC3",
                                       "\xE4\xB8",
                                       "\xFF",
                                       "\xED\xA0\x80",
                                       "\xCC\x81",
                                       "_"};
  std::string text;
  const std::size_t count = random() % most;
  for (std::size_t i = 0; i < count; ++i) text += kParts[random() % std::size(kParts)];
  return text;
}

TEST(SplitPatternTest, KnownCases) {
  EXPECT_EQ(split("I'm  here, 42's\n\n x"),
            (Pieces{"I", "'m", " ", " here", ",", " 42", "'s", "\n\n", " x"}));
  EXPECT_EQ(split("a   "), (Pieces{"a", "   "}));
  EXPECT_EQ(split("a \t b"), (Pieces{"a", " \t", " b"}));
  EXPECT_EQ(split("a\tb"), (Pieces{"a", "\t", "b"}));
  EXPECT_EQ(split(" 's 'S"), (Pieces{" '", "s", " '", "S"}));
  EXPECT_EQ(split("'lls'l"), (Pieces{"'ll", "s", "'", "l"}));
  EXPECT_EQ(split("don't!'ve"), (Pieces{"don", "'t", "!'", "ve"}));
  EXPECT_EQ(split(""), Pieces{});
}

TEST(SplitPatternTest, AgreesWithTheBookOnRandomTexts) {
  std::mt19937 random(1);
  for (int round = 0; round < 30000; ++round) {
    const std::string text = random_text(random, 14);
    ASSERT_EQ(split(text), split_by_the_book(text)) << testing::PrintToString(text);
  }
}

TEST(SplitPatternTest, SafeBoundariesGiveThePiecesOfTheWhole) {
  std::mt19937 random(2);
  std::size_t splits = 0;
  for (int round = 0; round < 30000; ++round) {
    const std::string text = random_text(random, 20);
    const std::size_t at = safe_piece_boundary(text, text.empty() ? 0 : random() % text.size());
    if (at >= text.size()) continue;
    ++splits;
    Pieces both = split(std::string_view(text).substr(0, at));
    const Pieces right = split(std::string_view(text).substr(at));
    both.insert(both.end(), right.begin(), right.end());
    ASSERT_EQ(both, split(text)) << testing::PrintToString(text) << " at " << at;
  }
  EXPECT_GT(splits, 10000U);
}

TEST(SplitPatternTest, SafeBoundariesHoldWhateverFollows) {
  std::mt19937 random(4);
  std::size_t splits = 0;
  for (int round = 0; round < 30000; ++round) {
    const std::string text = random_text(random, 20);
    const std::string known = text.substr(0, text.empty() ? 0 : random() % text.size());
    const std::size_t at = safe_piece_boundary(known, known.empty() ? 0 : random() % known.size());
    if (at >= known.size()) continue;
    ++splits;
    Pieces both = split(std::string_view(text).substr(0, at));
    const Pieces right = split(std::string_view(text).substr(at));
    both.insert(both.end(), right.begin(), right.end());
    ASSERT_EQ(both, split(text)) << testing::PrintToString(text) << " at " << at;
  }
  EXPECT_GT(splits, 10000U);
  EXPECT_EQ(safe_piece_boundary("a\xC3", 1), 2U);  // perhaps a letter
}

TEST(SplitPatternTest, BoundariesAreFoundInTextWithoutBlanks) {
  const std::string chinese =
      "\xE4\xB8\xAD\xE6\x96\x87\xEF\xBC\x8C\xE4\xB8\xAD";  // two letters, a comma, a letter
  EXPECT_EQ(safe_piece_boundary(chinese, 1), 6U);
  EXPECT_EQ(safe_piece_boundary("aaaa", 2), 4U);
  EXPECT_EQ(safe_piece_boundary("a'd", 1), 1U);
  EXPECT_EQ(safe_piece_boundary("a'd", 2), 3U);
}

}  // namespace
}  // namespace tessera
