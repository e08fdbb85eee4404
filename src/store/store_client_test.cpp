#include "store/store_client.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "base/error.h"
#include "store/raw_peer.h"
#include "store/store_server.h"

namespace tessera {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

StoreClient::Options options_for(int port, const std::string& prefix = "") {
  StoreClient::Options options;
  options.host = "127.0.0.1";
  options.port = port;
  options.prefix = prefix;
  options.connect_timeout = milliseconds(5000);
  options.timeout = milliseconds(5000);
  return options;
}

double seconds_since(steady_clock::time_point begin) {
  return std::chrono::duration<double>(steady_clock::now() - begin).count();
}

TEST(StoreClientTest, EveryVerb) {
  const StoreServer server({});
  StoreClient client(options_for(server.port()));
  EXPECT_EQ(client.get("a"), std::nullopt);
  client.set("a", "1");
  EXPECT_EQ(client.get("a"), "1");
  client.set("a", std::string("zero\0inside", 11));
  EXPECT_EQ(client.get("a"), std::string("zero\0inside", 11));
  client.set("empty", "");
  EXPECT_EQ(client.get("empty"), "");
  EXPECT_EQ(client.add("n", 5), 5);
  EXPECT_EQ(client.add("n", -7), -2);
  EXPECT_EQ(client.get("n"), "-2");
  EXPECT_EQ(client.add("n", 0), -2);
  EXPECT_TRUE(client.erase("n"));
  EXPECT_FALSE(client.erase("n"));
  EXPECT_EQ(client.get("n"), std::nullopt);
  EXPECT_EQ(client.compare_set("c", "", "first"), "first");
  EXPECT_EQ(client.compare_set("c", "", "second"), "first");
  EXPECT_EQ(client.compare_set("c", "first", "third"), "third");
  EXPECT_EQ(client.compare_set("absent", "x", "y"), "x");
  EXPECT_EQ(client.get("absent"), std::nullopt);
  const std::vector<std::optional<std::string>> all = {"third", std::nullopt, "", "third"};
  EXPECT_EQ(client.get_all({"c", "absent", "empty", "c"}), all);
  EXPECT_TRUE(client.get_all({}).empty());
  EXPECT_EQ(client.get_all({"absent"}), std::vector<std::optional<std::string>>{std::nullopt});
  EXPECT_EQ(client.local_address(), "127.0.0.1");
}

TEST(StoreClientTest, LargeValuesComeWhole) {
  const StoreServer server({});
  StoreClient client(options_for(server.port()));
  std::string large(std::size_t{16} << 20, 'x');
  for (std::size_t i = 0; i < large.size(); i += 997) large[i] = static_cast<char>(i);
  client.set("large", large);
  EXPECT_TRUE(client.get("large") == large);
  const auto twice = client.get_all({"large", "large"});
  EXPECT_TRUE(twice[0] == large && twice[1] == large);
}

TEST(StoreClientTest, PrefixesAreDifferentStores) {
  const StoreServer server({});
  StoreClient one(options_for(server.port(), "job1/")), two(options_for(server.port(), "job2/"));
  StoreClient bare(options_for(server.port()));
  one.set("k", "1");
  two.set("k", "2");
  EXPECT_EQ(one.get("k"), "1");
  EXPECT_EQ(two.get("k"), "2");
  EXPECT_EQ(bare.get("job1/k"), "1");
  EXPECT_EQ(bare.get("k"), std::nullopt);
  EXPECT_EQ(two.get_all({"k"}).front(), "2");
  EXPECT_TRUE(one.erase("k"));
  EXPECT_EQ(two.wait("k", milliseconds(0)), "2");
}

TEST(StoreClientTest, TwoWaitForOne) {
  const StoreServer server({});
  std::atomic<int> heard{0};
  const auto wait = [&] {
    StoreClient client(options_for(server.port()));
    if (client.wait("late", milliseconds(5000)) == "here") ++heard;
  };
  std::thread first(wait), second(wait);
  std::this_thread::sleep_for(milliseconds(100));
  EXPECT_EQ(heard, 0);
  StoreClient(options_for(server.port())).set("late", "here");
  const auto begin = steady_clock::now();
  first.join();
  second.join();
  EXPECT_EQ(heard, 2);
  EXPECT_LT(seconds_since(begin), 2);
}

TEST(StoreClientTest, WaitEndsInTime) {
  const StoreServer server({});
  StoreClient client(options_for(server.port()));
  const auto begin = steady_clock::now();
  EXPECT_EQ(client.wait("never", milliseconds(150)), std::nullopt);
  EXPECT_GE(seconds_since(begin), 0.15);
  EXPECT_LT(seconds_since(begin), 1.5);
}

TEST(StoreClientTest, CountersOfManyClientsAddUp) {
  const StoreServer server({});
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      StoreClient client(options_for(server.port()));
      for (int j = 0; j < 200; ++j) client.add("sum", 1);
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(StoreClient(options_for(server.port())).add("sum", 0), 800);
}

TEST(StoreClientTest, NobodyListens) {
  int port = 0;
  {
    const StoreServer server({});
    port = server.port();
  }
  StoreClient::Options options = options_for(port);
  options.connect_timeout = milliseconds(300);
  const auto begin = steady_clock::now();
  try {
    const StoreClient client(options);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kComm);
    EXPECT_NE(error.reason().find("Connection refused"), std::string::npos) << error.what();
    EXPECT_EQ(error.where(), "127.0.0.1:" + std::to_string(port));
    EXPECT_NE(error.remedy().find("MASTER_ADDR"), std::string::npos);
  }
  EXPECT_GE(seconds_since(begin), 0.1);
  EXPECT_LT(seconds_since(begin), 2);
}

TEST(StoreClientTest, UnknownNameIsAnErrorInTime) {
  StoreClient::Options options = options_for(1);
  options.host = "no-such-host.invalid";
  options.connect_timeout = milliseconds(300);
  const auto begin = steady_clock::now();
  EXPECT_THROW(
      try { const StoreClient client(options); } catch (const Error& error) {
        EXPECT_NE(error.reason().find("its name is not known"), std::string::npos) << error.what();
        throw;
      },
      Error);
  EXPECT_LT(seconds_since(begin), 3);
}

TEST(StoreClientTest, TheServerMayStartLater) {
  int port = 0;
  {
    const StoreServer server({});
    port = server.port();
  }
  std::unique_ptr<StoreServer> late;
  std::thread starter([&] {
    std::this_thread::sleep_for(milliseconds(200));
    StoreServerOptions options;
    options.port = port;
    late = std::make_unique<StoreServer>(options);
  });
  StoreClient client(options_for(port));
  starter.join();
  EXPECT_EQ(client.add("x", 1), 1);
}

// The other end takes the connection and is silent, as a frozen process is.
TEST(StoreClientTest, AFrozenStoreIsNoticedInTime) {
  Socket listener = listen_on("127.0.0.1", 0);
  StoreClient::Options options = options_for(local_port(listener));
  options.connect_timeout = milliseconds(300);
  const auto begin = steady_clock::now();
  EXPECT_THROW(
      try { const StoreClient client(options); } catch (const Error& error) {
        EXPECT_NE(error.reason().find("no answer within 0.3 s"), std::string::npos) << error.what();
        throw;
      },
      Error);
  EXPECT_LT(seconds_since(begin), 2);
}

// Greets as a store does, and is silent from then on.
TEST(StoreClientTest, ARequestThatIsNotAnsweredNamesTheKey) {
  Socket listener = listen_on("127.0.0.1", 0);
  Socket accepted;
  std::thread greeter([&] {
    while (!accepted) accepted = accept_from(listener);
    char greeting[10];
    std::size_t size = 0;
    while (size < sizeof greeting) {
      const ssize_t count = ::recv(accepted.get(), greeting + size, sizeof greeting - size, 0);
      if (count > 0) size += static_cast<std::size_t>(count);
    }
    ::send(accepted.get(), greeting + 6, 4, MSG_NOSIGNAL);
  });
  StoreClient::Options options = options_for(local_port(listener), "job/");
  options.timeout = milliseconds(200);
  StoreClient client(options);
  greeter.join();
  const auto begin = steady_clock::now();
  try {
    client.wait("key", milliseconds(50));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kComm);
    EXPECT_NE(error.reason().find("'key'"), std::string::npos) << error.what();
    // The job's secret is in the prefix.
    EXPECT_EQ(std::string(error.what()).find("job/"), std::string::npos) << error.what();
    EXPECT_NE(error.reason().find("no answer within 0.2 s"), std::string::npos) << error.what();
  }
  EXPECT_LT(seconds_since(begin), 2);
}

TEST(StoreClientTest, SomethingElseListens) {
  Socket listener = listen_on("127.0.0.1", 0);
  std::atomic<bool> stop{false};
  std::thread other([&] {
    std::vector<Socket> all;
    while (!stop) {
      Socket accepted = accept_from(listener);
      if (accepted) {
        ::send(accepted.get(), "SSH-2.0-OpenSSH_9.2\r\n", 21, MSG_NOSIGNAL);
        all.push_back(std::move(accepted));
      }
      std::this_thread::sleep_for(milliseconds(1));
    }
  });
  StoreClient::Options options = options_for(local_port(listener));
  options.connect_timeout = milliseconds(500);
  EXPECT_THROW(
      try { const StoreClient client(options); } catch (const Error& error) {
        EXPECT_NE(error.reason().find("is not a store"), std::string::npos) << error.what();
        throw;
      },
      Error);
  stop = true;
  other.join();
}

TEST(StoreClientTest, TheEndOfTheServerIsAnErrorAndNoSignal) {
  auto server = std::make_unique<StoreServer>(StoreServerOptions());
  StoreServerOptions again;
  again.port = server->port();
  StoreClient::Options options = options_for(server->port());
  options.timeout = milliseconds(300);
  StoreClient client(options);
  client.set("a", "1");
  server.reset();
  // So much that the other end's refusal arrives while it is still being sent.
  EXPECT_THROW(client.set("a", std::string(std::size_t{16} << 20, 'v')), Error);
  for (int i = 0; i < 2; ++i) EXPECT_THROW(client.set("a", "2"), Error);
  // The same port, at once, though connections of the old server linger.
  server = std::make_unique<StoreServer>(again);
  EXPECT_EQ(client.get("a"), std::nullopt);
  EXPECT_EQ(client.add("b", 3), 3);
}

TEST(StoreClientTest, TooLargeAValueIsAnErrorForItsSenderOnly) {
  StoreServerOptions server_options;
  server_options.limits.value_bytes = 1000;
  const StoreServer server(server_options);
  StoreClient client(options_for(server.port())), other(options_for(server.port()));
  other.set("k", std::string(1000, 'v'));
  EXPECT_THROW(
      try { client.set("large", std::string(1001, 'v')); } catch (const Error& error) {
        EXPECT_NE(error.reason().find("refuses"), std::string::npos) << error.what();
        throw;
      },
      Error);
  EXPECT_EQ(other.get("large"), std::nullopt);
  EXPECT_EQ(client.get("k"), std::string(1000, 'v'));
}

volatile sig_atomic_t signals_seen = 0;

TEST(StoreClientTest, SignalsDoNotEndACall) {
  const StoreServer server({});
  StoreClient client(options_for(server.port()));
  struct sigaction action {
  }, before{};
  action.sa_handler = [](int) { signals_seen = signals_seen + 1; };
  sigaction(SIGUSR2, &action, &before);  // without SA_RESTART: poll ends with EINTR
  std::atomic<bool> stop{false};
  std::thread disturber([&, target = pthread_self()] {
    while (!stop) {
      pthread_kill(target, SIGUSR2);
      std::this_thread::sleep_for(milliseconds(1));
    }
  });
  const std::string value(std::size_t{1} << 20, 'v');
  for (int i = 0; i < 40; ++i) {
    client.set("k", value);
    EXPECT_TRUE(client.get("k") == value);
  }
  EXPECT_EQ(client.wait("never", milliseconds(50)), std::nullopt);
  stop = true;
  disturber.join();
  sigaction(SIGUSR2, &before, nullptr);
  EXPECT_GT(signals_seen, 10);
}

}  // namespace
}  // namespace tessera
