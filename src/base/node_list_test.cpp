#include "base/node_list.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace tessera {
namespace {

using Names = std::vector<std::string>;

TEST(NodeListTest, ReadsWhatSlurmWrites) {
  struct Case {
    const char* text;
    Names expected;
  };
  // As `scontrol show hostnames` prints them.
  const Case cases[] = {
      {"localhost", {"localhost"}},
      {"g[10,20-25],b1", {"g10", "g20", "g21", "g22", "g23", "g24", "g25", "b1"}},
      {"r[1-2]n[01-03]", {"r1n01", "r1n02", "r1n03", "r2n01", "r2n02", "r2n03"}},
      {"n[008-011]", {"n008", "n009", "n010", "n011"}},
      {"n[8-11]", {"n8", "n9", "n10", "n11"}},
      {"n[0]", {"n0"}},
      {"a-b_c.d[1-2].e,x", {"a-b_c.d1.e", "a-b_c.d2.e", "x"}},
      {"[1-2]n", {"1n", "2n"}},
      {"n[2,1,2]", {"n2", "n1", "n2"}},
      {"n[00-01]-ib[5]", {"n00-ib5", "n01-ib5"}},
      {"n[18446744073709551,98765432109]", {"n18446744073709551", "n98765432109"}},
  };
  for (const Case& item : cases) EXPECT_EQ(parse_node_list(item.text), item.expected) << item.text;
}

TEST(NodeListTest, ShowsThePlaceOfAMistake) {
  struct Case {
    const char *text, *why, *where;
  };
  const Case cases[] = {
      {"", "a name is missing", "character 1 of ''"},
      {"a,,b", "a name is missing", "character 3 of 'a,,b'"},
      {"a,", "a name is missing", "character 3 of 'a,'"},
      {"n[1-3", "']' is missing", "character 6 of 'n[1-3'"},
      {"n[1-3,", "a number is missing", "character 7 of 'n[1-3,'"},
      {"n[]", "a number is missing", "character 3 of 'n[]'"},
      {"n[3-1]", "ends before it begins", "character 6 of 'n[3-1]'"},
      {"n[1-]", "a number is missing", "character 5 of 'n[1-]'"},
      {"n[a]", "a number is missing", "character 3 of 'n[a]'"},
      {"n[1[2]]", "']' is missing", "character 4 of 'n[1[2]]'"},
      {"n]", "not of a name", "character 2 of 'n]'"},
      {"n 1", "not of a name", "character 2 of 'n 1'"},
      {"n[0-99999999999]", "more than 65536 nodes", "character 16"},
      {"n[0-999][0-999]", "more than 65536 nodes", "character 16"},
      {"n[1-99999999999999999999]", "too large", "character 25"},
  };
  for (const Case& item : cases) {
    try {
      parse_node_list(item.text);
      ADD_FAILURE() << item.text;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kConfig);
      EXPECT_NE(error.reason().find(item.why), std::string::npos) << error.what();
      EXPECT_EQ(error.where().find(item.where), 0u) << error.what();
    }
  }
}

TEST(NodeListTest, ReadsTasksPerNode) {
  EXPECT_EQ(parse_tasks_per_node("2(x3),1"), (std::vector<int>{2, 2, 2, 1}));
  EXPECT_EQ(parse_tasks_per_node("4"), std::vector<int>{4});
  EXPECT_EQ(parse_tasks_per_node("1,2,1(x2),16"), (std::vector<int>{1, 2, 1, 1, 16}));
  for (const char* text : {"", ",", "2,", "2(x3", "2(3)", "2(x)", "x", "2(x3)1", "-1", "2 ",
                           "2(x99999999)", "99999999999999999999", "1(x65536),1"}) {
    try {
      parse_tasks_per_node(text);
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kConfig);
      EXPECT_NE(error.where().find(std::string("of '") + text + "'"), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace tessera
