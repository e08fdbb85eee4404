#include "train/torch_errors.h"

#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <new>

#include "base/error.h"

namespace tessera {
namespace {

template <class Work>
Error caught(Work work) {
  try {
    translate_errors(work);
  } catch (const Error& error) {
    return error;
  }
  return Error(ErrorKind::kUsage, "nothing was thrown");
}

TEST(TorchErrorsTest, AreTranslatedByWhatTheyMean) {
  EXPECT_EQ(caught([] { throw std::bad_alloc(); }).kind(), ErrorKind::kResource);
  EXPECT_EQ(caught([] { TORCH_CHECK(false, "DefaultCPUAllocator: can't allocate memory"); }).kind(),
            ErrorKind::kResource);
  const Error other = caught([] { TORCH_CHECK(false, "sizes differ"); });
  EXPECT_EQ(other.kind(), ErrorKind::kInternal);
  EXPECT_EQ(std::string(other.what()).find('\n'), std::string::npos)
      << "a backtrace is in the message";
  EXPECT_EQ(caught([] { throw Error(ErrorKind::kData, "x"); }).kind(), ErrorKind::kData);
}

}  // namespace
}  // namespace tessera
