#include "base/hash.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

// The digest of nothing is published with the XXH3 test vectors.
TEST(HashTest, EmptyInputHasThePublishedDigest) {
  EXPECT_EQ(content_hash(""), "99aa06d3014798d86001c324468d497f");
}

TEST(HashTest, StreamEqualsWhole) {
  ContentHash hash;
  hash.update("ab");
  hash.update("c");
  EXPECT_EQ(hash.digest(), content_hash("abc"));
  EXPECT_NE(content_hash("abc"), content_hash("abd"));
  EXPECT_NE(hash64("abc"), hash64("abc", 1));
}

}  // namespace
}  // namespace tessera
