#include "tokenizer/char_tokenizer.h"

#include <gtest/gtest.h>

#include <string>

#include "base/error.h"
#include "base/temporary_directory.h"
#include "tokenizer/byte_tokenizer.h"

namespace tessera {
namespace {

TEST(ByteTokenizerTest, BytesAreTheirIds) {
  const auto tokenizer = make_byte_tokenizer(EndOfText::kAdded);
  EXPECT_EQ(tokenizer->vocab_size(), 257);
  EXPECT_EQ(tokenizer->end_of_text(), 256);
  EXPECT_EQ(tokenizer->encode("a\xFF<|endoftext|>", SpecialTokens::kParse),
            (std::vector<TokenId>{97, 255, 256}));
  EXPECT_EQ(make_byte_tokenizer(EndOfText::kNone)->vocab_size(), 256);
  EXPECT_NE(make_byte_tokenizer(EndOfText::kNone)->hash(), tokenizer->hash());
}

TEST(ByteTokenizerTest, ThreadsGiveTheSameIds) {
  std::string text;
  for (int i = 0; i < 300000; ++i) text += static_cast<char>(i * 7 + i / 255);
  const auto tokenizer = make_byte_tokenizer(EndOfText::kNone);
  EXPECT_EQ(tokenizer->encode(text, SpecialTokens::kAsText, 4), tokenizer->encode(text));
}

std::unique_ptr<Tokenizer> char_tokenizer(std::string_view text, EndOfText end = EndOfText::kNone) {
  CharVocabulary vocabulary;
  vocabulary.add(text, "sample");
  return vocabulary.make_tokenizer(end);
}

TEST(CharTokenizerTest, IdsAscendByCodePoint) {
  const auto tokenizer = char_tokenizer("b\xC3\xA9 a\n", EndOfText::kAdded);
  EXPECT_EQ(tokenizer->vocab_size(), 6);
  EXPECT_EQ(tokenizer->encode("\n ab\xC3\xA9"), (std::vector<TokenId>{0, 1, 2, 3, 4}));
  EXPECT_EQ(tokenizer->end_of_text(), 5);
  EXPECT_EQ(tokenizer->decode(std::vector<TokenId>{4, 5}), "\xC3\xA9<|endoftext|>");
}

TEST(CharTokenizerTest, UnknownCharactersAreNamedWithTheirPlaceOnAnyNumberOfThreads) {
  const auto tokenizer = char_tokenizer("abc");
  std::string text(400000, 'a');
  text.replace(300000, 2, "\xC3\xA9");
  text.replace(350000, 1, "z");
  for (const int threads : {1, 4}) {
    try {
      tokenizer->encode(text, SpecialTokens::kAsText, threads);
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kData);
      EXPECT_NE(std::string(error.what()).find("U+00E9 '\xC3\xA9'"), std::string::npos)
          << error.what();
      EXPECT_EQ(error.where(), "byte 300000 of the text");
      EXPECT_FALSE(error.remedy().empty());
    }
  }
}

TEST(CharTokenizerTest, InvalidTextAndEmptyVocabulariesAreRefused) {
  CharVocabulary vocabulary;
  EXPECT_THROW(vocabulary.make_tokenizer(EndOfText::kNone), Error);
  try {
    vocabulary.add("ab\xFF", "train.txt");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.where(), "train.txt, byte 2");
  }
  EXPECT_THROW(char_tokenizer("a")->encode("a\x80"), Error);
  EXPECT_THROW(make_char_tokenizer("aa", EndOfText::kNone), Error);
}

TEST(CharTokenizerTest, SavedAndLoadedIsTheSame) {
  const auto files = make_posix_file_system();
  const auto check = [&](const Tokenizer& tokenizer) {
    const TemporaryDirectory directory;
    tokenizer.save(*files, directory.path());
    const auto loaded = load_tokenizer(directory.path());
    EXPECT_EQ(loaded->hash(), tokenizer.hash());
    EXPECT_EQ(loaded->kind(), tokenizer.kind());
    EXPECT_EQ(loaded->end_of_text(), tokenizer.end_of_text());
  };
  check(*char_tokenizer("a\"\\\n\x01\xF0\x9F\x99\x82", EndOfText::kAdded));
  check(*char_tokenizer("\xC2\x85 abc"));
  check(*make_byte_tokenizer(EndOfText::kNone));
  check(*make_byte_tokenizer(EndOfText::kAdded));
}

}  // namespace
}  // namespace tessera
