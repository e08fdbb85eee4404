#include "tokenizer/unicode_classes.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "base/file_system.h"

namespace tessera {
namespace {

TEST(UnicodeClassesTest, EveryCodePointHasTheClassOfThePublishedTable) {
  const Path file = Path(TESSERA_SHARED_DATA) / "gpt2" / "unicode_classes.tsv";
  if (!std::filesystem::exists(file)) GTEST_SKIP() << "the shared data are not at " << file;
  std::vector<CharClass> expected(0x110000, CharClass::kOther);
  std::ifstream in(file);
  std::size_t ranges = 0;
  for (std::string name, first, last; in >> name >> first >> last; ++ranges) {
    const CharClass value = name == "L"   ? CharClass::kLetter
                            : name == "N" ? CharClass::kNumber
                                          : CharClass::kSpace;
    for (auto code = std::stoul(first, nullptr, 16); code <= std::stoul(last, nullptr, 16);
         ++code) {
      expected[code] = value;
    }
  }
  EXPECT_EQ(ranges, 659U + 137U + 10U);
  std::size_t wrong = 0;
  for (char32_t code = 0; code < 0x110000; ++code) wrong += class_of(code) != expected[code];
  EXPECT_EQ(wrong, 0U);
}

TEST(UnicodeClassesTest, WhiteSpaceIsUnicodesAndNotJavaScripts) {
  EXPECT_EQ(class_of(U'\u0085'), CharClass::kSpace);
  EXPECT_EQ(class_of(U'\uFEFF'), CharClass::kOther);
  EXPECT_EQ(class_of(char32_t{0x1C}), CharClass::kOther);
}

TEST(UnicodeClassesTest, EveryScalarValueSurvivesEncodingAndDecoding) {
  for (char32_t code = 0; code < 0x110000; ++code) {
    if (code >= 0xD800 && code <= 0xDFFF) continue;
    std::string text;
    append_utf8(code, text);
    const CodePoint point = decode_code_point(text.data(), text.data() + text.size());
    ASSERT_TRUE(point.valid && point.code == code && point.length == text.size())
        << std::uint32_t{code};
    if (text.size() > 1) {
      ASSERT_FALSE(decode_code_point(text.data(), text.data() + text.size() - 1).valid);
    }
  }
}

TEST(UnicodeClassesTest, InvalidSequencesAreFoundWhereTheyStart) {
  EXPECT_EQ(find_invalid_utf8("ab\xC3\xA9"), std::string_view::npos);
  for (const char* bad :
       {"\x80", "\xC0\x80", "\xC1\xBF", "\xE0\x80\x80", "\xED\xA0\x80", "\xF0\x80\x80\x80",
        "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xE2\x82", "\xC3("}) {
    EXPECT_EQ(find_invalid_utf8(std::string("ab") + bad), 2U) << bad;
  }
}

}  // namespace
}  // namespace tessera
