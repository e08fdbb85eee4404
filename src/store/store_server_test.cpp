#include "store/store_server.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>

#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/process_memory.h"
#include "store/raw_peer.h"
#include "store/store_client.h"

namespace tessera {
namespace {

using std::chrono::milliseconds;

template <typename Number>
std::string bytes_of(Number number) {
  std::string bytes;
  append_number(bytes, number);
  return bytes;
}

std::string text_of(std::string_view text) {
  std::string bytes;
  append_text(bytes, text);
  return bytes;
}

const std::string kReady(1, 0), kNotReady(1, 1), kStopWaiting(1, 0), kWaitCanceled(1, 1);

class StoreServerTest : public ::testing::Test {
 protected:
  explicit StoreServerTest(StoreLimits limits = {}) {
    StoreServerOptions options;
    options.limits = limits;
    server_ = std::make_unique<StoreServer>(options);
  }

  int port() const { return server_->port(); }
  RawPeer introduced() const {
    RawPeer peer(port());
    peer.send(RawPeer::greeting());
    return peer;
  }
  // What a client sees that has nothing to do with the others.
  void expect_serving() const {
    StoreClient::Options options;
    options.host = "127.0.0.1";
    options.port = port();
    options.connect_timeout = options.timeout = milliseconds(5000);
    StoreClient client(options);
    const std::int64_t before = client.add("expect_serving", 0);
    EXPECT_EQ(client.add("expect_serving", 1), before + 1);
  }

  std::unique_ptr<StoreServer> server_;
};

TEST_F(StoreServerTest, EveryQueryByItsBytes) {
  RawPeer peer = introduced();
  using Q = StoreQuery;
  struct Case {
    std::string_view request;
    std::string answer;
  };
  peer.send(Request(Q::kPing).nonce(0x12345678));
  EXPECT_EQ(peer.receive(4), "\x78\x56\x34\x12");
  const auto ask = [&](const Request& request, const std::string& answer) {
    peer.send(request);
    EXPECT_EQ(peer.receive(answer.size()), answer);
    EXPECT_FALSE(peer.hears(0));
  };
  const std::string nothing;
  ask(Request(Q::kSet).text("/k").text("v"), nothing);
  ask(Request(Q::kGet).text("/k"), text_of("v"));
  ask(Request(Q::kGet).text("/absent"), text_of(""));
  ask(Request(Q::kAppend).text("/k").text("w"), nothing);
  ask(Request(Q::kAppend).text("/new").text("n"), nothing);
  ask(Request(Q::kMultiGet).number(3).text("/k").text("/absent").text("/new"),
      text_of("vw") + text_of("") + text_of("n"));
  ask(Request(Q::kMultiGet).number(0), nothing);
  ask(Request(Q::kMultiSet).number(2).text("/a").text("1").text("/b").text("22"), nothing);
  ask(Request(Q::kAdd).text("/b").number(3), bytes_of<std::int64_t>(25));
  ask(Request(Q::kAdd).text("/c").number(-3), bytes_of<std::int64_t>(-3));
  ask(Request(Q::kGet).text("/c"), text_of("-3"));
  ask(Request(Q::kGetNumKeys), bytes_of<std::int64_t>(5));
  ask(Request(Q::kCheck).number(2).text("/a").text("/b"), kReady);
  ask(Request(Q::kCheck).number(2).text("/a").text("/absent"), kNotReady);
  ask(Request(Q::kCheck).number(0), kReady);
  ask(Request(Q::kDeleteKey).text("/a"), bytes_of<std::int64_t>(1));
  ask(Request(Q::kDeleteKey).text("/a"), bytes_of<std::int64_t>(0));
  ask(Request(Q::kCompareSet).text("/a").text("").text("x"), text_of("x"));
  ask(Request(Q::kCompareSet).text("/a").text("y").text("z"), text_of("x"));
  ask(Request(Q::kCompareSet).text("/a").text("x").text("z"), text_of("z"));
  ask(Request(Q::kCompareSet).text("/absent").text("x").text("z"), text_of("x"));
  ask(Request(Q::kQueueLength).text("/q"), bytes_of<std::int64_t>(0));
  ask(Request(Q::kQueuePop).text("/q"), bytes_of<std::int64_t>(0));
  ask(Request(Q::kQueuePush).text("/q").text("one"), nothing);
  ask(Request(Q::kQueuePush).text("/q").text("two"), nothing);
  ask(Request(Q::kQueueLength).text("/q"), bytes_of<std::int64_t>(2));
  ask(Request(Q::kCheck).number(1).text("/q"), kReady);
  ask(Request(Q::kQueuePop).text("/q"), bytes_of<std::int64_t>(2) + text_of("one"));
  ask(Request(Q::kQueuePop).text("/q"), bytes_of<std::int64_t>(1) + text_of("two"));
  ask(Request(Q::kCheck).number(1).text("/q"), kNotReady);
  for (const char* key : {"/k", "/new", "/a", "/b"})
    ask(Request(Q::kDeleteKey).text(key), bytes_of<std::int64_t>(1));
  ask(Request(Q::kListKeys), bytes_of<std::int64_t>(1) + text_of("/c"));
  ask(Request(Q::kBarrier).text("/barrier").number(1), kStopWaiting);
}

TEST_F(StoreServerTest, WaitingAndCancelling) {
  using Q = StoreQuery;
  RawPeer one = introduced(), two = introduced(), setter = introduced();
  one.send(Request(Q::kWait).number(3).text("/a").text("/b").text("/a"));
  two.send(Request(Q::kWait).number(1).text("/b"));
  EXPECT_FALSE(one.hears(50));
  setter.send(Request(Q::kSet).text("/a").text(""));
  EXPECT_FALSE(one.hears(50));
  setter.send(Request(Q::kAdd).text("/b").number(1));
  EXPECT_EQ(one.receive(1), kStopWaiting);
  EXPECT_EQ(two.receive(1), kStopWaiting);
  one.send(Request(Q::kWait).number(2).text("/a").text("/b"));
  EXPECT_EQ(one.receive(1), kStopWaiting);
  one.send(Request(Q::kWait).number(1).text("/c"));
  EXPECT_FALSE(one.hears(50));
  one.send(Request(Q::kCancelWait));
  EXPECT_EQ(one.receive(1), kWaitCanceled);
  setter.send(Request(Q::kSet).text("/c").text(""));
  EXPECT_FALSE(one.hears(50));
  // One that has gone does not disturb those who wait for the same.
  one.send(Request(Q::kWait).number(1).text("/d"));
  two.send(Request(Q::kWait).number(1).text("/d"));
  EXPECT_FALSE(one.hears(50));
  one.close();
  for (const Q waker : {Q::kAppend, Q::kMultiSet, Q::kCompareSet, Q::kQueuePush}) {
    const std::string key = "/by" + std::to_string(static_cast<int>(waker));
    two.send(Request(Q::kCancelWait));
    EXPECT_EQ(two.receive(1), kWaitCanceled);
    two.send(Request(Q::kWait).number(1).text(key));
    EXPECT_FALSE(two.hears(20));
    Request request(waker);
    if (waker == Q::kMultiSet) request.number(1);
    request.text(key).text("");
    if (waker == Q::kCompareSet) request.text("x");
    setter.send(request);
    EXPECT_EQ(two.receive(1), kStopWaiting);
  }
  expect_serving();
}

TEST_F(StoreServerTest, AnItemOfAQueueWakesOneAndABarrierAll) {
  using Q = StoreQuery;
  RawPeer one = introduced(), two = introduced(), three = introduced();
  one.send(Request(Q::kWait).number(1).text("/q"));
  EXPECT_FALSE(one.hears(50));
  two.send(Request(Q::kWait).number(1).text("/q"));
  EXPECT_FALSE(two.hears(50));
  three.send(Request(Q::kQueuePush).text("/q").text("item"));
  EXPECT_EQ(one.receive(1), kStopWaiting);
  EXPECT_FALSE(two.hears(50));
  three.send(Request(Q::kQueuePush).text("/q").text("item"));
  EXPECT_EQ(two.receive(1), kStopWaiting);

  // The first in the line has gone: the item wakes the next.
  {
    RawPeer gone = introduced();
    gone.send(Request(Q::kWait).number(1).text("/q2"));
    EXPECT_FALSE(gone.hears(50));
    two.send(Request(Q::kWait).number(1).text("/q2"));
    EXPECT_FALSE(two.hears(50));
  }
  EXPECT_FALSE(two.hears(50));
  three.send(Request(Q::kQueuePush).text("/q2").text("item"));
  EXPECT_EQ(two.receive(1), kStopWaiting);

  one.send(Request(Q::kBarrier).text("/b").number(3));
  two.send(Request(Q::kBarrier).text("/b").number(3));
  EXPECT_FALSE(one.hears(50));
  EXPECT_FALSE(two.hears(0));
  three.send(Request(Q::kBarrier).text("/b").number(3));
  for (RawPeer* peer : {&one, &two, &three}) EXPECT_EQ(peer->receive(1), kStopWaiting);
}

TEST_F(StoreServerTest, RequestsInPiecesAndInOnePiece) {
  RawPeer slow = introduced();
  std::string stream;
  for (int i = 0; i < 20; ++i) {
    stream += Request(StoreQuery::kMultiSet).number(2).text("/x").text("1").text("/y").text("22");
    stream += Request(StoreQuery::kCheck).number(2).text("/x").text("/y");
    stream += Request(StoreQuery::kAdd).text("/n").number(1);
  }
  for (const char byte : stream) {
    ASSERT_TRUE(slow.send(std::string_view(&byte, 1)));
    if (&byte - stream.data() == 100) expect_serving();  // between two bytes of another
  }
  for (int i = 1; i <= 20; ++i) EXPECT_EQ(slow.receive(9), kReady + bytes_of<std::int64_t>(i));
  RawPeer fast(port());
  fast.send(RawPeer::greeting() + stream);
  for (int i = 21; i <= 40; ++i) EXPECT_EQ(fast.receive(9), kReady + bytes_of<std::int64_t>(i));
}

TEST_F(StoreServerTest, StrangersAreDisconnected) {
  const std::string greeting = RawPeer::greeting();
  const std::vector<std::string> openings = {
      "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
      "\x16\x03\x01\x02",             // TLS
      std::string("\0\0\0\0\0", 5),   // another magic
      greeting + std::string(1, 19),  // the first unknown query
      greeting + "\xff",
      greeting + greeting,  // introduced twice
      greeting + std::string(Request(StoreQuery::kGet).number(-1)),
      greeting + std::string(Request(StoreQuery::kGet).number((8 << 10) + 1)),
      greeting + std::string(Request(StoreQuery::kSet).text("/k").number((16 << 20) + 1)),
      greeting + std::string(Request(StoreQuery::kMultiGet).number((128 << 10) + 1)),
      greeting + std::string(Request(StoreQuery::kWait).number(INT64_MAX)),
      greeting + std::string(Request(StoreQuery::kSet).text("/k").text("v")) +
          std::string(Request(StoreQuery::kAdd).text("/k").number(1)),
      greeting + std::string(Request(StoreQuery::kAdd).text("/m").number(INT64_MAX)) +
          std::string(Request(StoreQuery::kAdd).text("/m").number(1)),
      std::string(Request(StoreQuery::kSet).text("/k").text("stolen")),
      std::string(Request(StoreQuery::kSet).text("/k").number(1 << 20)),  // the value never comes
  };
  RawPeer waiting = introduced();
  waiting.send(Request(StoreQuery::kWait).number(1).text("/later"));
  for (const std::string& opening : openings) {
    RawPeer peer(port());
    peer.send(opening);
    EXPECT_TRUE(peer.is_closed()) << testing::PrintToString(opening.substr(0, 30));
    expect_serving();
  }
  RawPeer peer = introduced();
  peer.send(Request(StoreQuery::kGet).text("/k"));
  EXPECT_EQ(peer.receive(9), text_of("v"));
  peer.send(Request(StoreQuery::kSet).text("/later").text(""));
  EXPECT_EQ(waiting.receive(1), kStopWaiting);
}

TEST_F(StoreServerTest, NoMemoryForWhatWasOnlyClaimed) {
  expect_serving();
  const std::uint64_t before = process_memory().resident_bytes;
  std::vector<RawPeer> peers;
  for (int i = 0; i < 100; ++i) {
    peers.push_back(introduced());
    peers.back().send(Request(StoreQuery::kSet).text("/k").number(16 << 20));  // and no value
    peers.push_back(introduced());
    peers.back().send(Request(StoreQuery::kWait).number(128 << 10));
  }
  expect_serving();
  EXPECT_LT(process_memory().resident_bytes, before + (std::uint64_t{32} << 20));
}

TEST_F(StoreServerTest, HalfOpenAndSilentConnectionsHarmNobody) {
  std::vector<RawPeer> silent;
  for (int i = 0; i < 20; ++i) silent.emplace_back(port());
  for (int i = 0; i < 20; ++i) {
    RawPeer peer(port());  // a port scan: connects and resets
    const linger reset{1, 0};
    ::setsockopt(peer.descriptor(), SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
  }
  RawPeer half = introduced();
  ::shutdown(half.descriptor(), SHUT_WR);
  EXPECT_TRUE(half.is_closed());
  expect_serving();
  EXPECT_FALSE(silent[0].is_closed(0));
}

TEST_F(StoreServerTest, FiveHundredConnections) {
  rlimit files{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &files), 0);
  const rlimit before = files;
  files.rlim_cur = std::min<rlim_t>(files.rlim_max, 4096);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &files), 0);
  if (files.rlim_cur < 1100) GTEST_SKIP() << "this system allows " << files.rlim_cur << " files";
  {
    std::vector<RawPeer> peers;
    for (int i = 0; i < 500; ++i) {
      peers.push_back(introduced());
      peers.back().send(Request(StoreQuery::kWait).number(1).text("/go"));
    }
    for (int i = 0; i < 500; ++i) peers[0].send(Request(StoreQuery::kAdd).text("/sum").number(i));
    RawPeer setter = introduced();
    setter.send(Request(StoreQuery::kSet).text("/go").text(""));
    for (std::size_t i = 1; i < peers.size(); ++i) ASSERT_EQ(peers[i].receive(1), kStopWaiting);
    expect_serving();
  }
  ::setrlimit(RLIMIT_NOFILE, &before);
}

StoreLimits few_connections() {
  StoreLimits limits;
  limits.connections = 4;
  return limits;
}

class FewConnectionsTest : public StoreServerTest {
 protected:
  FewConnectionsTest() : StoreServerTest(few_connections()) {}
};

TEST_F(FewConnectionsTest, StrangersMakeRoomAndClientsDoNot) {
  std::vector<RawPeer> strangers;
  for (int i = 0; i < 6; ++i) strangers.emplace_back(port());
  EXPECT_TRUE(strangers[0].is_closed());
  EXPECT_TRUE(strangers[1].is_closed());
  EXPECT_FALSE(strangers[2].is_closed(50));
  std::vector<RawPeer> clients;
  for (int i = 0; i < 4; ++i) {
    clients.push_back(introduced());
    clients.back().send(Request(StoreQuery::kAdd).text("/n").number(1));
    EXPECT_EQ(clients.back().receive(8), bytes_of<std::int64_t>(i + 1));
  }
  RawPeer one_more = introduced();
  EXPECT_TRUE(one_more.is_closed());
  for (RawPeer& client : clients) {
    client.send(Request(StoreQuery::kGet).text("/n"));
    EXPECT_EQ(client.receive(9), text_of("4"));
  }
  clients.pop_back();
  RawPeer next = introduced();
  next.send(Request(StoreQuery::kGet).text("/n"));
  EXPECT_EQ(next.receive(9), text_of("4"));
}

StoreLimits little_memory() {
  StoreLimits limits;
  limits.value_bytes = 1 << 20;
  limits.answer_bytes = 2 << 20;
  limits.total_bytes = 4 << 20;
  return limits;
}

class LittleMemoryTest : public StoreServerTest {
 protected:
  LittleMemoryTest() : StoreServerTest(little_memory()) {}
};

TEST_F(LittleMemoryTest, AFullStoreStillAnswers) {
  const std::string value(1 << 20, 'v');
  int refused = 0;
  for (int i = 0; i < 6; ++i) {
    RawPeer peer = introduced();
    const std::string key = "/k" + std::to_string(i);
    peer.send(Request(StoreQuery::kSet).text(key).text(value));
    peer.send(Request(StoreQuery::kPing).nonce(7));
    refused += peer.receive(4).empty() ? 1 : 0;
  }
  EXPECT_GE(refused, 2);
  EXPECT_LE(refused, 4);
  RawPeer peer = introduced();
  peer.send(Request(StoreQuery::kCheck).number(1).text("/k0"));
  EXPECT_EQ(peer.receive(1), kReady);
  peer.send(Request(StoreQuery::kDeleteKey).text("/k0"));
  EXPECT_EQ(peer.receive(8), bytes_of<std::int64_t>(1));
  expect_serving();
}

TEST_F(LittleMemoryTest, ManySmallValuesFillItToo) {
  RawPeer peer = introduced();
  int kept = 0;
  for (int i = 0; i < 1000; ++i) {
    peer.send(
        Request(StoreQuery::kSet).text("/k" + std::to_string(i)).text(std::string(9000, 'v')));
    peer.send(Request(StoreQuery::kPing).nonce(7));
    if (peer.receive(4).empty()) break;
    ++kept;
  }
  EXPECT_GT(kept, 400);
  EXPECT_LT(kept, 470);  // 4 MiB
  peer = introduced();
  peer.send(Request(StoreQuery::kGet).text("/k1"));
  EXPECT_EQ(peer.receive(9008).size(), 9008u);
}

TEST_F(LittleMemoryTest, AnswersBeyondTheLimitAndAppendsBeyondItAreRefused) {
  const std::string value(1 << 20, 'v');
  RawPeer greedy = introduced();
  greedy.send(Request(StoreQuery::kSet).text("/k").text(value));
  greedy.send(Request(StoreQuery::kMultiGet).number(3).text("/k").text("/k").text("/k"));
  EXPECT_TRUE(greedy.is_closed());
  RawPeer appender = introduced();
  appender.send(Request(StoreQuery::kAppend).text("/k").text("1"));
  EXPECT_TRUE(appender.is_closed());
  // Who does not read what it asked for is not listened to, then disconnected.
  RawPeer deaf = introduced();
  for (int i = 0; i < 64 && deaf.send(Request(StoreQuery::kGet).text("/k")); ++i) {
  }
  expect_serving();
  RawPeer reader = introduced();
  reader.send(Request(StoreQuery::kGet).text("/k"));
  EXPECT_EQ(reader.receive(8 + value.size()).size(), 8 + value.size());
}

TEST(StoreServerOptionsTest, AddressesAndPorts) {
  const StoreServer server({});
  EXPECT_EQ(server.address(), "127.0.0.1");
  EXPECT_GT(server.port(), 0);
  struct Case {
    const char* address;
    int port;
    const char* why;
  };
  const Case cases[] = {{"127.0.0.1", server.port(), "Address already in use"},
                        {"192.0.2.77", 0, "Cannot assign requested address"},
                        {"not-a-host.invalid", 0, "cannot listen"},
                        {"127.0.0.1", 65536, "no such port"},
                        {"127.0.0.1", -1, "no such port"}};
  for (const Case& item : cases) {
    StoreServerOptions options;
    options.address = item.address;
    options.port = item.port;
    try {
      const StoreServer refused(options);
      ADD_FAILURE() << item.why;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kComm);
      EXPECT_NE(error.reason().find(item.why), std::string::npos) << error.what();
      EXPECT_EQ(error.where(), std::string(item.address) + ":" + std::to_string(item.port));
      EXPECT_FALSE(error.remedy().empty());
    }
  }
}

TEST(StoreServerOptionsTest, ListensOnItsInterfaceOnly) {
  StoreServerOptions options;
  options.address = "127.0.0.2";
  const StoreServer server(options);
  EXPECT_EQ(server.address(), "127.0.0.2");
  std::string reason;
  const Deadline soon = std::chrono::steady_clock::now() + milliseconds(1000);
  EXPECT_TRUE(connect_once("127.0.0.2", server.port(), soon, reason));
  EXPECT_FALSE(connect_once("127.0.0.1", server.port(), soon, reason));
  EXPECT_EQ(reason, "Connection refused");
}

TEST(StoreServerOptionsTest, TheSamePortAgainAtOnce) {
  StoreServerOptions options;
  for (int i = 0; i < 5; ++i) {
    auto server = std::make_unique<StoreServer>(options);
    options.port = server->port();
    RawPeer peer(server->port());
    peer.send(RawPeer::greeting());
    peer.send(Request(StoreQuery::kPing).nonce(1));
    EXPECT_EQ(peer.receive(4).size(), 4u);
    server.reset();  // closes first, so that its end of the connection lingers on the port
    EXPECT_TRUE(peer.is_closed());
  }
}

}  // namespace
}  // namespace tessera
