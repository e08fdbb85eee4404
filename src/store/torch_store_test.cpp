// Against torch's own TCPStore, both ways: what a client of torch is told by our server, and our
// client at torch's servers.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "base/file_system.h"
#include "store/socket.h"
#include "store/store_client.h"
#include "store/store_server.h"

namespace tessera {
namespace {

// A python that has torch, or nothing.
std::string python_with_torch() {
  std::vector<std::string> candidates;
  if (const char* named = std::getenv("TORCH_PYTHON")) candidates.emplace_back(named);
  candidates.emplace_back(std::string(TESSERA_SOURCE_DIR) + "/.venv/bin/python");
  for (const std::string& candidate : candidates)
    if (::access(candidate.c_str(), X_OK) == 0) return candidate;
  return "";
}

// testdata/tcp_store_peer.py with its stdin and stdout here.
class TorchPeer {
 public:
  explicit TorchPeer(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(),
                     {python_with_torch(),
                      std::string(TESSERA_SOURCE_DIR) + "/src/store/testdata/tcp_store_peer.py"});
    std::vector<char*> words;
    for (std::string& argument : arguments) words.push_back(argument.data());
    words.push_back(nullptr);
    int in[2], out[2];
    EXPECT_EQ(::pipe2(in, O_CLOEXEC), 0);
    EXPECT_EQ(::pipe2(out, O_CLOEXEC), 0);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
    EXPECT_EQ(::posix_spawn(&id_, words[0], &actions, nullptr, words.data(), environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    ::close(in[0]);
    ::close(out[1]);
    input_ = Socket(in[1]);
    output_ = Socket(out[0]);
  }
  ~TorchPeer() {
    if (id_ > 0) ::kill(id_, SIGKILL), ::waitpid(id_, nullptr, 0);
  }

  std::string line() {
    std::string text;
    char byte = 0;
    while (::read(output_.get(), &byte, 1) == 1 && byte != '\n') text.push_back(byte);
    return text;
  }
  void end_input() { input_.close(); }
  int wait() {
    int status = -1;
    ::waitpid(id_, &status, 0);
    id_ = -1;
    return status;
  }

 private:
  pid_t id_ = -1;
  Socket input_, output_;
};

StoreClient::Options torch_store_options(int port) {
  StoreClient::Options options;
  options.host = "127.0.0.1";
  options.port = port;
  options.connect_timeout = options.timeout = std::chrono::milliseconds(10000);
  return options;
}

// What a client of torch was told by our server.
void expect_served(const std::string& line, StoreClient& ours) {
  ASSERT_TRUE(nlohmann::json::accept(line)) << line;
  nlohmann::json told = nlohmann::json::parse(line);
  const auto expect = [&](const char* what, const nlohmann::json& value) {
    EXPECT_EQ(told.value(what, nlohmann::json("not asked")), value) << what;
  };
  expect("keys_at_start", 2);  // ours, and the one by which torch counts its workers
  expect("get", "value");
  expect("from_us", "hello");
  expect("large", 1 << 20);
  expect("add", {2, -3});
  expect("wait_timeout", "DistStoreError");
  expect("get_after_timeout", "value");
  expect("check", {true, false});
  expect("compare_set", {"one", "one", "four", "x"});
  expect("append", "potato");
  expect("multi_get", {"first", "value", "second"});
  expect("delete", {true, false});
  expect("clone", "value");
  // Which releases have had these differs; what they answer does not.
  if (told.contains("queue")) expect("queue", {2, "first", "second", 0});
  if (told.contains("queue")) expect("queue_empty", "QueueEmptyError");
  if (told.contains("list_keys"))
    expect("list_keys", {"a", "ap", "c", "from_us", "large", "m2", "n", "prefix/k"});
  if (told.contains("barrier_timeout")) {
    EXPECT_FALSE(told["barrier_timeout"].is_null());
  }
  EXPECT_EQ(ours.get("a"), "value");
  EXPECT_EQ(ours.get("n"), "-3");
  EXPECT_EQ(ours.get("prefix/k"), "under the prefix");
}

// Our client at servers of torch.
void expect_served_by_torch(const std::string& line) {
  std::istringstream ports(line);
  int port = 0, servers = 0;
  while (ports >> port) {
    ++servers;
    StoreClient client(torch_store_options(port));
    EXPECT_EQ(client.get("from_torch"), "hello");
    EXPECT_EQ(client.get("absent"), std::nullopt);
    client.set("from_us", "good day");
    EXPECT_EQ(client.get("from_us"), "good day");
    EXPECT_EQ(client.add("n", 4), 4);
    EXPECT_EQ(client.add("n", -1), 3);
    EXPECT_EQ(client.compare_set("c", "", "one"), "one");
    EXPECT_EQ(client.compare_set("c", "one", "two"), "two");
    EXPECT_EQ(client.compare_set("c", "one", "three"), "two");
    const std::vector<std::optional<std::string>> all = {"two", std::nullopt, "hello"};
    EXPECT_EQ(client.get_all({"c", "absent", "from_torch"}), all);
    EXPECT_EQ(client.wait("n", std::chrono::milliseconds(100)), "3");
    EXPECT_EQ(client.wait("absent", std::chrono::milliseconds(50)), std::nullopt);
    EXPECT_TRUE(client.erase("n"));
    EXPECT_FALSE(client.erase("n"));
    const std::string large(std::size_t{1} << 20, 'x');
    client.set("large", large);
    EXPECT_TRUE(client.get("large") == large);
  }
  EXPECT_EQ(servers, 2) << line;
}

// One test, because to start torch takes seconds.
TEST(TorchStoreTest, BothWays) {
  if (python_with_torch().empty())
    GTEST_SKIP() << "no python with torch: neither TORCH_PYTHON nor .venv/bin/python";
  const StoreServer server({});
  StoreClient ours(torch_store_options(server.port()));
  ours.set("from_us", "hello");
  TorchPeer peer({std::to_string(server.port())});
  ASSERT_NO_FATAL_FAILURE(expect_served(peer.line(), ours));
  expect_served_by_torch(peer.line());
  peer.end_input();
  EXPECT_EQ(peer.line(), "good day good day");
  EXPECT_EQ(peer.wait(), 0);
}

}  // namespace
}  // namespace tessera
