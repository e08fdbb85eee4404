#include "base/registry.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

struct Entry {
  std::string_view name;
  int value;
};
constexpr Entry kTable[] = {{"adamw", 1}, {"sgd", 2}};

TEST(RegistryTest, FindsAndSuggests) {
  EXPECT_EQ(find_in_registry(kTable, "sgd", "optimizer").value, 2);
  try {
    find_in_registry(kTable, "adam", "optimizer");
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "unknown optimizer 'adam'. Did you mean 'adamw'? Valid: adamw, sgd.");
  }
}

TEST(RegistryTest, EditDistance) {
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
  EXPECT_EQ(edit_distance("", "abc"), 3u);
  EXPECT_TRUE(nearest("qqqq", std::vector<std::string_view>{"adamw"}).empty());
}

}  // namespace
}  // namespace tessera
