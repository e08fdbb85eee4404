#include "base/signals.h"

#include <gtest/gtest.h>
#include <signal.h>

namespace tessera {
namespace {

TEST(SignalRequestsTest, FirstSignalIsARequest) {
  SignalRequests requests;
  EXPECT_EQ(requests.stop_signal(), 0);
  raise(SIGUSR1);
  EXPECT_TRUE(requests.take_save_request());
  EXPECT_FALSE(requests.take_save_request());
  raise(SIGTERM);
  EXPECT_EQ(requests.stop_signal(), SIGTERM);
}

TEST(SignalRequestsTest, AHangupIsATerminationThatMayBeRepeated) {
  SignalRequests requests;
  raise(SIGHUP);
  raise(SIGHUP);
  EXPECT_EQ(requests.stop_signal(), SIGTERM);
}

TEST(SignalRequestsTest, AnIgnoredHangupStaysIgnored) {
  const auto before = signal(SIGHUP, SIG_IGN);
  {
    SignalRequests requests;
    raise(SIGHUP);
    EXPECT_EQ(requests.stop_signal(), 0);
  }
  EXPECT_EQ(signal(SIGHUP, before), SIG_IGN);
}

TEST(SignalRequestsDeathTest, SecondSignalEndsTheProcess) {
  EXPECT_EXIT(
      {
        SignalRequests requests;
        raise(SIGINT);
        raise(SIGINT);
      },
      testing::ExitedWithCode(130), "not saved");
}

}  // namespace
}  // namespace tessera
