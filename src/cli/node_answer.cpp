#include "cli/node_answer.h"

#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <thread>
#include <utility>

#include "store/socket.h"

namespace tessera::cli {
namespace {

using std::chrono::steady_clock;
constexpr int kLookMs = 50;  // how soon the thread notices that it shall end

double wall_clock_s() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// Until the other end closes, or the time is over.
std::string read_all(const Socket& socket, Deadline deadline, std::string& failure) {
  std::string text;
  char buffer[256];
  while (true) {
    pollfd waiting{socket.get(), POLLIN, 0};
    const int ready = ::poll(&waiting, 1, milliseconds_until(deadline));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) {
      failure = "connected, but got no answer in time";
      return text;
    }
    const ssize_t count = ::recv(socket.get(), buffer, sizeof buffer, 0);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (count < 0) failure = std::strerror(errno);
    if (count <= 0) return text;
    text.append(buffer, static_cast<std::size_t>(count));
    if (text.size() > 4096) {
      failure = "somebody else answers there";
      return text;
    }
  }
}

}  // namespace

struct NodeAnswer::State {
  Socket listener;
  std::string token;
  std::atomic<bool> ending{false};
  std::thread thread;

  void run() {
    while (!ending) {
      pollfd waiting{listener.get(), POLLIN, 0};
      if (::poll(&waiting, 1, kLookMs) <= 0) continue;
      const Socket asker = accept_from(listener);
      if (!asker) continue;
      char clock[64];
      std::snprintf(clock, sizeof clock, " %.9f\n", wall_clock_s());
      const std::string answer = token + clock;
      // One line fits into any socket's buffer; who does not read it does not hold up others.
      (void)::send(asker.get(), answer.data(), answer.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      ::shutdown(asker.get(), SHUT_WR);
    }
  }
};

NodeAnswer::NodeAnswer(const std::string& address, std::string token)
    : state_(std::make_unique<State>()) {
  state_->listener = listen_on(address, 0);
  state_->token = std::move(token);
  state_->thread = std::thread([state = state_.get()] { state->run(); });
}

NodeAnswer::~NodeAnswer() {
  state_->ending = true;
  state_->thread.join();
}

int NodeAnswer::port() const { return local_port(state_->listener); }

AskedNode ask_node(const std::string& address, int port, const std::string& token,
                   Deadline deadline) {
  AskedNode asked;
  const Socket socket = connect_once(address, port, deadline, asked.failure);
  if (!socket) {
    if (asked.failure.empty()) asked.failure = "no connection";
    return asked;
  }
  asked.failure.clear();
  const double connected = wall_clock_s();
  const std::string text = read_all(socket, deadline, asked.failure);
  const double answered = wall_clock_s();
  double theirs = 0;
  if (asked.failure.empty() && (!text.starts_with(token + " ") ||
                                std::sscanf(text.c_str() + token.size(), "%lf", &theirs) != 1))
    asked.failure = "somebody else answers there";
  asked.round_trip_s = answered - connected;
  asked.clock_ahead_s = theirs - (connected + answered) / 2;
  return asked;
}

}  // namespace tessera::cli
