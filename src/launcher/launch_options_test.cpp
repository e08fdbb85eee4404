#include "launcher/launch_options.h"

#include <gtest/gtest.h>
#include <signal.h>

#include "base/error.h"

namespace tessera {
namespace {

template <class Call>
std::string refusal(Call call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUsage);
    return error.what();
  }
  return "";
}

TEST(LaunchOptions, NodeRanges) {
  EXPECT_EQ(parse_node_range("2").min, 2);
  EXPECT_EQ(parse_node_range("2").max, 2);
  EXPECT_EQ(parse_node_range("1:4").min, 1);
  EXPECT_EQ(parse_node_range("1:4").max, 4);
  for (const char* bad : {"", "0", "-1", "4:1", "1:2:3", "two", "2:", "1.5"})
    EXPECT_NE(refusal([&] { parse_node_range(bad); }).find("--nnodes"), std::string::npos) << bad;
}

// Expected values: torch.distributed.elastic's Std.from_str and to_map.
TEST(LaunchOptions, StreamsAsTorchrunReadsThem) {
  EXPECT_EQ(parse_stream_choice("tee", "3").of(7), 3);
  EXPECT_FALSE(parse_stream_choice("tee", "0").any());
  const StreamChoice some = parse_stream_choice("tee", "0:3,1:0,2:1,3:2");
  EXPECT_EQ(some.of(0), 3);
  EXPECT_EQ(some.of(1), 0);
  EXPECT_EQ(some.of(2), 1);
  EXPECT_EQ(some.of(3), 2);
  EXPECT_EQ(some.of(4), 0);
  for (const char* bad : {"", "4", "0:4", "0:1,", "a:1", "1:1:1", "0:1;1:2"})
    EXPECT_NE(refusal([&] { parse_stream_choice("redirects", bad); }).find("--redirects"),
              std::string::npos)
        << bad;
}

TEST(LaunchOptions, Endpoints) {
  LaunchOptions options;
  parse_endpoint("node1", 29400, options);
  EXPECT_EQ(options.endpoint_host, "node1");
  EXPECT_EQ(options.endpoint_port, 29400);
  parse_endpoint("10.0.0.1:1234", 29400, options);
  EXPECT_EQ(options.endpoint_host, "10.0.0.1");
  EXPECT_EQ(options.endpoint_port, 1234);
  parse_endpoint("[::1]:77", 29400, options);
  EXPECT_EQ(options.endpoint_host, "::1");
  EXPECT_EQ(options.endpoint_port, 77);
  for (const char* bad : {"", ":1", "a:", "a:70000", "a:x"})
    EXPECT_NE(refusal([&] { parse_endpoint(bad, 1, options); }), "") << bad;
}

TEST(LaunchOptions, RendezvousSettings) {
  LaunchOptions options;
  parse_rendezvous_settings("join_timeout=60,last_call_timeout=1.5,heartbeat_timeout=2", options);
  EXPECT_EQ(options.join_timeout_s, 60);
  EXPECT_EQ(options.last_call_s, 1.5);
  EXPECT_EQ(options.heartbeat_timeout_s, 2);
  EXPECT_NE(refusal([&] { parse_rendezvous_settings("is_host=1", options); }).find("is_host"),
            std::string::npos);
  EXPECT_NE(refusal([&] { parse_rendezvous_settings("join_timeout=x", options); }), "");
  EXPECT_NE(refusal([&] { parse_rendezvous_settings("join_timeout", options); }), "");
}

TEST(LaunchOptions, Signals) {
  EXPECT_EQ(parse_signals("SIGHUP,USR2"), (std::vector<int>{SIGHUP, SIGUSR2}));
  EXPECT_NE(refusal([] { parse_signals("SIGNAL"); }), "");
  EXPECT_NE(refusal([] { parse_signals("SIGKILL"); }).find("cannot be forwarded"),
            std::string::npos);
}

TEST(LaunchOptions, ProgramsAreFoundAsAShellFindsThem) {
  EXPECT_EQ(find_program("/bin/sh"), "/bin/sh");
  EXPECT_TRUE(find_program("sh").ends_with("/sh"));
  EXPECT_NE(refusal([] { find_program("no-such-program-here"); }).find("PATH"), std::string::npos);
  EXPECT_NE(refusal([] { find_program("/etc/passwd"); }).find("not executable"), std::string::npos);
  EXPECT_NE(refusal([] { find_program("/etc/"); }).find("folder"), std::string::npos);
}

}  // namespace
}  // namespace tessera
