#include "tokenizer/utf8_stream.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "tokenizer/unicode_classes.h"

namespace tessera {
namespace {

const std::string kReplaced = "\xEF\xBF\xBD";

TEST(Utf8StreamTest, HoldsBackWhatIsIncomplete) {
  Utf8Stream stream;
  EXPECT_EQ(stream.feed("a\xF0\x9F"), "a");
  EXPECT_EQ(stream.feed("\x99"), "");
  EXPECT_EQ(stream.feed("\x82z"), "\xF0\x9F\x99\x82z");
  EXPECT_EQ(stream.flush(), "");
}

TEST(Utf8StreamTest, WhatCannotBecomeValidIsNotHeldBack) {
  Utf8Stream stream;
  EXPECT_EQ(stream.feed("\x80"), kReplaced);
  EXPECT_EQ(stream.feed("\xFF"), kReplaced);
  EXPECT_EQ(stream.feed("\xED\xA0"), kReplaced + kReplaced);
}

TEST(Utf8StreamTest, FlushReplacesAnIncompleteCharacterOnce) {
  Utf8Stream stream;
  EXPECT_EQ(stream.feed("\xE4\xB8"), "");
  EXPECT_EQ(stream.flush(), kReplaced);
  EXPECT_EQ(stream.feed("\xADx"), kReplaced + "x");
}

// Counts as Python 3 gives them: bytes.decode("utf-8", "replace").
TEST(Utf8StreamTest, ReplacesMaximalParts) {
  EXPECT_EQ(replace_invalid_utf8("\x80"), kReplaced);
  EXPECT_EQ(replace_invalid_utf8("\xE4\xB8z"), kReplaced + "z");
  EXPECT_EQ(replace_invalid_utf8("\xED\xA0\x80"), kReplaced + kReplaced + kReplaced);
  EXPECT_EQ(replace_invalid_utf8("\xF0\x9F\x99"), kReplaced);
  EXPECT_EQ(replace_invalid_utf8("\xF4\x90\x80"), kReplaced + kReplaced + kReplaced);
  EXPECT_EQ(replace_invalid_utf8("\xC0\xAF"), kReplaced + kReplaced);
}

TEST(Utf8StreamTest, OutputIsValidAndDoesNotDependOnHowItWasFed) {
  std::mt19937 random(3);
  for (int round = 0; round < 20000; ++round) {
    std::string bytes;
    const std::size_t length = random() % 12;
    static const unsigned char kBytes[] = {'a',  0x80, 0x9F, 0xA0, 0xBF, 0xC2,
                                           0xE0, 0xE4, 0xED, 0xF0, 0xF4, 0xFF};
    for (std::size_t i = 0; i < length; ++i)
      bytes += static_cast<char>(kBytes[random() % sizeof kBytes]);
    Utf8Stream stream;
    std::string out;
    for (std::size_t at = 0; at < bytes.size();) {
      const std::size_t size = 1 + random() % 3;
      const std::string part = stream.feed(bytes.substr(at, size));
      ASSERT_EQ(find_invalid_utf8(part), std::string::npos);
      out += part;
      at += size;
    }
    out += stream.flush();
    ASSERT_EQ(out, replace_invalid_utf8(bytes));
    if (find_invalid_utf8(bytes) == std::string::npos) {
      ASSERT_EQ(out, bytes);
    }
  }
}

}  // namespace
}  // namespace tessera
