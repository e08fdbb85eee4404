#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <thread>

#include "base/error.h"
#include "store/raw_peer.h"
#include "store/store_client.h"
#include "store/store_server.h"

namespace tessera {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

double seconds_passed(steady_clock::time_point begin) {
  return std::chrono::duration<double>(steady_clock::now() - begin).count();
}

// A process as rank 0 is: forks its store and then lives until it is told to end.
class Caller {
 public:
  explicit Caller(double linger_seconds) {
    int pipe_ends[2];
    EXPECT_EQ(::pipe2(pipe_ends, O_CLOEXEC), 0);
    id_ = ::fork();
    if (id_ == 0) {
      int port = 0;
      try {
        port = fork_store_server({}, linger_seconds);
      } catch (const std::exception&) {
        port = -1;
      }
      const ssize_t written = ::write(pipe_ends[1], &port, sizeof port);
      (void)written;
      // The write end stays open in this process; it must not in the store's.
      while (true) ::pause();
    }
    ::close(pipe_ends[1]);
    pipe_ = Socket(pipe_ends[0]);
    EXPECT_EQ(::read(pipe_.get(), &port_, sizeof port_), static_cast<ssize_t>(sizeof port_));
  }
  ~Caller() { end(SIGKILL); }

  void end(int signal_number) {
    if (id_ <= 0) return;
    ::kill(id_, signal_number);
    ::waitpid(id_, nullptr, 0);
    id_ = -1;
  }
  int port() const { return port_; }

  // Whether every process that had the pipe's write end has closed it.
  bool pipe_is_closed(int timeout_ms) const {
    pollfd wait{pipe_.get(), POLLIN, 0};
    return ::poll(&wait, 1, timeout_ms) == 1 && (wait.revents & POLLHUP) != 0;
  }

  // The store's process: the one child.
  pid_t store_id() const {
    std::ifstream file("/proc/" + std::to_string(id_) + "/task/" + std::to_string(id_) +
                       "/children");
    pid_t child = 0;
    file >> child;
    return child;
  }

 private:
  pid_t id_ = -1;
  Socket pipe_;
  int port_ = 0;
};

StoreClient client_of(int port) {
  StoreClient::Options options;
  options.host = "127.0.0.1";
  options.port = port;
  options.connect_timeout = options.timeout = milliseconds(2000);
  return StoreClient(options);
}

bool listens(int port) {
  std::string reason;
  return static_cast<bool>(
      connect_once("127.0.0.1", port, steady_clock::now() + milliseconds(1000), reason));
}

bool ends_within(int port, double seconds) {
  const auto begin = steady_clock::now();
  while (listens(port)) {
    if (seconds_passed(begin) > seconds) return false;
    std::this_thread::sleep_for(milliseconds(20));
  }
  return true;
}

int open_files(pid_t process) {
  const std::filesystem::directory_iterator files("/proc/" + std::to_string(process) + "/fd");
  return static_cast<int>(std::distance(begin(files), end(files)));
}

TEST(ForkedStoreTest, OutlivesItsCallerByTheLingerTime) {
  Caller caller(0.6);
  StoreClient client = client_of(caller.port());
  client.set("why", "rank 0 died");
  caller.end(SIGKILL);
  const auto begin = steady_clock::now();
  std::this_thread::sleep_for(milliseconds(300));
  EXPECT_EQ(client.get("why"), "rank 0 died");
  EXPECT_EQ(client_of(caller.port()).get("why"), "rank 0 died");  // new ones too
  // The client stays connected, and still the store goes.
  EXPECT_TRUE(ends_within(caller.port(), 2));
  EXPECT_GE(seconds_passed(begin), 0.5);
  EXPECT_THROW(client.get("why"), Error);
}

TEST(ForkedStoreTest, GoesWithItsCallerWhenNoClientIsLeft) {
  Caller caller(60);
  client_of(caller.port()).set("a", "1");
  EXPECT_EQ(client_of(caller.port()).get("a"), "1");
  RawPeer scan(caller.port());  // one that never says who it is does not keep it
  caller.end(SIGKILL);
  EXPECT_TRUE(ends_within(caller.port(), 2));
}

TEST(ForkedStoreTest, GoesWhenTheLastClientGoes) {
  Caller caller(60);
  auto client = std::make_unique<StoreClient>(client_of(caller.port()));
  client->set("a", "1");
  caller.end(SIGTERM);
  std::this_thread::sleep_for(milliseconds(100));
  EXPECT_EQ(client->get("a"), "1");
  client.reset();
  EXPECT_TRUE(ends_within(caller.port(), 2));
}

TEST(ForkedStoreTest, HearsNoTerminalAndHoldsNothingOfItsCaller) {
  Caller caller(0.2);
  const pid_t store = caller.store_id();
  ASSERT_GT(store, 1);
  std::string name;
  std::getline(std::ifstream("/proc/" + std::to_string(store) + "/comm"), name);
  EXPECT_EQ(name, "tessera-store");
  EXPECT_EQ(::getpgid(store), store);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1}) ::kill(store, number);
  std::this_thread::sleep_for(milliseconds(50));
  EXPECT_EQ(client_of(caller.port()).add("n", 1), 1);
  // /dev/null twice, stderr, listener, poll and the caller's handle; the client's may not yet be
  // closed.
  const auto begin = steady_clock::now();
  while (open_files(store) > 6 && seconds_passed(begin) < 2)
    std::this_thread::sleep_for(milliseconds(10));
  EXPECT_EQ(open_files(store), 6);
  caller.end(SIGKILL);
  EXPECT_TRUE(caller.pipe_is_closed(2000));
  EXPECT_TRUE(ends_within(caller.port(), 2));
}

TEST(ForkedStoreTest, TheCallersPipesEndWithTheCaller) {
  Caller caller(60);
  StoreClient client = client_of(caller.port());
  client.set("a", "1");
  caller.end(SIGKILL);
  EXPECT_TRUE(caller.pipe_is_closed(1000));
  EXPECT_EQ(client.get("a"), "1");
}

TEST(ForkedStoreTest, APortInUseIsTheCallersError) {
  const StoreServer server({});
  StoreServerOptions options;
  options.port = server.port();
  EXPECT_THROW(
      try { fork_store_server(options, 1); } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::kComm);
        EXPECT_NE(error.reason().find("in use"), std::string::npos) << error.what();
        throw;
      },
      Error);
}

}  // namespace
}  // namespace tessera
