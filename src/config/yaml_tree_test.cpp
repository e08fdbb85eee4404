#include "config/yaml_tree.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace tessera {
namespace {

std::string mistake_in(const std::string& text) {
  Mistakes mistakes;
  parse_yaml(text, "f", mistakes);
  try {
    mistakes.throw_if_any();
  } catch (const Error& error) {
    return error.what();
  }
  return "none";
}

TEST(YamlTree, KeepsPlacesAndQuotes) {
  Mistakes mistakes;
  const auto root = parse_yaml("a:\n  b: 'x'\n  c: [1, ~]\n", "f", mistakes);
  ASSERT_TRUE(root && mistakes.empty());
  const YamlNode* a = root->find("a");
  ASSERT_NE(a, nullptr);
  const YamlNode* b = a->find("b");
  EXPECT_EQ(b->text, "x");
  EXPECT_TRUE(b->quoted);
  EXPECT_EQ(to_string(b->place), "f:2:6");
  EXPECT_EQ(to_string(a->entries[1].place), "f:3:3");
  ASSERT_EQ(a->find("c")->items.size(), 2u);
  EXPECT_TRUE(a->find("c")->items[1].is_null());
  EXPECT_FALSE(b->is_null());
}

TEST(YamlTree, AnEmptyTextIsAnEmptyMapping) {
  Mistakes mistakes;
  for (const char* text : {"", "# only a comment\n", "\n\n"}) {
    const auto root = parse_yaml(text, "f", mistakes);
    ASSERT_TRUE(root) << text;
    EXPECT_EQ(root->kind, YamlNode::Kind::kMapping);
  }
  EXPECT_TRUE(mistakes.empty());
}

TEST(YamlTree, ExpandsAliases) {
  Mistakes mistakes;
  const auto root = parse_yaml("a: &x {k: 1}\nb: *x\n", "f", mistakes);
  ASSERT_TRUE(root && mistakes.empty());
  EXPECT_EQ(root->find("b")->find("k")->text, "1");
}

TEST(YamlTree, IgnoresAByteOrderMark) {
  Mistakes mistakes;
  const auto root = parse_yaml(
      "\xEF\xBB\xBF"
      "a: 1\nb: 2\n",
      "f", mistakes);
  ASSERT_TRUE(root && mistakes.empty());
  EXPECT_EQ(root->find("b")->text, "2");
  EXPECT_NE(mistake_in("\xEF\xBB\xBF"
                       "a: 1\na: 2\n")
                .find("f:2:1: a: given twice"),
            std::string::npos);
}

TEST(YamlTree, NamesWhatIsWrong) {
  EXPECT_NE(mistake_in("a:\n\tb: 1\n").find("f:2:1: not valid YAML: a tab where YAML needs spaces"),
            std::string::npos)
      << mistake_in("a:\n\tb: 1\n");
  EXPECT_NE(mistake_in("a: b: c\n").find("f:1:5: not valid YAML"), std::string::npos);
  EXPECT_NE(mistake_in("a: [1\n").find("not valid YAML"), std::string::npos);
  EXPECT_NE(mistake_in("a: 1\na: 2\n").find("f:2:1: a: given twice, first in line 1"),
            std::string::npos);
  EXPECT_NE(mistake_in("a: 1\n---\nb: 1\n").find("f:2:1: a second document"), std::string::npos);
  EXPECT_NE(mistake_in("a: !!int 3\n").find("is not used here"), std::string::npos);
  EXPECT_NE(mistake_in("a: *x\n").find("f:1:4: the alias '*x' has no anchor"), std::string::npos);
  EXPECT_NE(mistake_in("[a]: 1\n").find("a key must be a name"), std::string::npos);
  EXPECT_NE(mistake_in("a: \xff\n").find("f:1:4: not UTF-8"), std::string::npos);
  EXPECT_NE(mistake_in(std::string("a: \0b\n", 6)).find("f:1:4: a control character"),
            std::string::npos);
}

TEST(YamlTree, IsSafeFromBombs) {
  std::string bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 12; ++i) {
    const std::string earlier = "*a" + std::to_string(i - 1);
    bomb += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [";
    for (int k = 0; k < 10; ++k) bomb += (k == 0 ? "" : ", ") + earlier;
    bomb += "]\n";
  }
  EXPECT_NE(mistake_in(bomb).find("more than 10000 values"), std::string::npos);
  EXPECT_NE(mistake_in(std::string(100000, '[')).find("nested more than 16 deep"),
            std::string::npos);
  EXPECT_NE(mistake_in("a: &a [*a]\n").find("has no anchor"), std::string::npos);
}

}  // namespace
}  // namespace tessera
