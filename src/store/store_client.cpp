#include "store/store_client.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/text_format.h"
#include "store/socket.h"
#include "store/store_protocol.h"

namespace tessera {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kFirstDelay{10}, kLongestDelay{500};  // between two tries to connect
constexpr milliseconds kFirstLook{1}, kLongestLook{50};      // between two looks of wait()
constexpr milliseconds kGreeting{5000};                      // for the first answer
constexpr std::uint64_t kMostBytesOfAnswer = std::uint64_t{1} << 30;
constexpr std::uint32_t kNonce = 0x7e55e7a5;

// Why a request failed; becomes an Error where host, port and key are known.
struct Failure {
  std::string reason;
};

std::string seconds_text(milliseconds time) {
  return format_fixed(time.count() / 1000.0, 1) + " s";
}

// Sends and receives on one connection until a deadline.
class Wire {
 public:
  Wire(const Socket& socket, Deadline deadline, milliseconds timeout)
      : socket_(socket.get()), deadline_(deadline), timeout_(timeout) {}

  void send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t count = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (count >= 0)
        bytes.remove_prefix(static_cast<std::size_t>(count));
      else
        pause_for(POLLOUT);
    }
  }

  template <typename Number>
  Number number() {
    Number value{};
    receive(reinterpret_cast<char*>(&value), sizeof value);
    return value;
  }

  std::string text() {
    std::uint64_t left = number<std::uint64_t>();
    if (left > kMostBytesOfAnswer) throw Failure{"the answer is not one of a store"};
    std::string value;
    std::array<char, 1 << 16> chunk;
    while (left > 0) {  // grows with what comes, not with what was claimed
      const std::size_t count = std::min<std::uint64_t>(left, chunk.size());
      receive(chunk.data(), count);
      value.append(chunk.data(), count);
      left -= count;
    }
    return value;
  }

 private:
  void receive(char* bytes, std::size_t size) {
    while (size > 0) {
      const ssize_t count = ::recv(socket_, bytes, size, 0);
      if (count == 0)
        throw Failure{"the store closed the connection: it has ended, or refuses what was asked"};
      if (count > 0) {
        bytes += count;
        size -= static_cast<std::size_t>(count);
      } else {
        pause_for(POLLIN);
      }
    }
  }

  // After a call that did not go on: waits until it may.
  void pause_for(short events) {
    if (errno == EINTR) return;
    if (errno != EAGAIN && errno != EWOULDBLOCK) throw Failure{std::strerror(errno)};
    pollfd wait{socket_, events, 0};
    const int ready = ::poll(&wait, 1, milliseconds_until(deadline_));
    if (ready == 0) throw Failure{"no answer within " + seconds_text(timeout_)};
  }

  const int socket_;
  const Deadline deadline_;
  const milliseconds timeout_;
};

std::string request(StoreQuery query) { return std::string(1, static_cast<char>(query)); }

}  // namespace

struct StoreClient::State {
  explicit State(Options given) : options(std::move(given)) {}

  std::string place() const { return options.host + ":" + std::to_string(options.port); }

  std::string full_key(std::string_view key) const {
    std::string full(1, kStoreKeyPrefix);
    return full.append(options.prefix).append(key);
  }

  // One try; false: `reason` says why.
  bool connect_once(Deadline deadline, std::string& reason) {
    Socket fresh = tessera::connect_once(options.host, options.port, deadline, reason);
    if (!fresh) return false;
    std::string greeting = request(StoreQuery::kValidate);
    append_number(greeting, kStoreMagic);
    greeting += request(StoreQuery::kPing);
    append_number(greeting, kNonce);
    try {
      const Deadline soon = std::min<Deadline>(deadline, steady_clock::now() + kGreeting);
      Wire wire(fresh, soon, std::chrono::ceil<milliseconds>(soon - steady_clock::now()));
      wire.send(greeting);
      if (wire.number<std::uint32_t>() != kNonce) {
        reason = "what listens there is not a store";
        return false;
      }
    } catch (const Failure& failure) {
      reason = failure.reason;
      return false;
    }
    socket = std::move(fresh);
    return true;
  }

  void connect(milliseconds timeout) {
    const Deadline deadline = deadline_after(timeout);
    std::string reason, last;
    for (milliseconds delay = kFirstDelay; !connect_once(deadline, last);
         delay = std::min(2 * delay, kLongestDelay)) {
      const milliseconds left(milliseconds_until(deadline));
      // A try that only ran out of time says less than those before it, and so would a short one.
      if (reason.empty() || left > milliseconds(0)) reason = last;
      if (left < delay + kFirstDelay)
        throw Error(ErrorKind::kComm,
                    "connecting to the job's store failed for " + seconds_text(timeout) +
                        ", the last time because of: " + reason,
                    place(),
                    "Check that rank 0 or the launcher runs, that this host reaches it, and that "
                    "MASTER_ADDR and MASTER_PORT are the same everywhere.");
      std::this_thread::sleep_for(delay);
    }
  }

  // Runs one exchange; whatever fails closes the connection, whose state is not known then.
  template <typename Exchange>
  auto run(const char* doing, std::string_view key, Exchange exchange) {
    const Deadline deadline = deadline_after(options.timeout);
    if (!socket) connect(options.timeout);
    try {
      Wire wire(socket, deadline, options.timeout);
      return exchange(wire);
    } catch (const Failure& failure) {
      socket.close();
      throw Error(ErrorKind::kComm,
                  // Without the prefix: the job's secret is in it.
                  std::string(doing) + " '" + std::string(key) +
                      "' in the job's store failed: " + failure.reason,
                  place(),
                  "Look at the first error of the other ranks and of the launcher: the store ends "
                  "with the job.");
    }
  }

  Options options;
  Socket socket;
};

namespace {

bool check(Wire& wire, const std::string& full_key) {
  std::string asked = request(StoreQuery::kCheck);
  append_number<std::uint64_t>(asked, 1);
  append_text(asked, full_key);
  wire.send(asked);
  return wire.number<std::uint8_t>() == static_cast<std::uint8_t>(StoreCheckAnswer::kReady);
}

}  // namespace

StoreClient::StoreClient(const Options& options) : state_(std::make_unique<State>(options)) {
  state_->connect(options.connect_timeout);
}

StoreClient::~StoreClient() = default;
StoreClient::StoreClient(StoreClient&&) noexcept = default;
StoreClient& StoreClient::operator=(StoreClient&&) noexcept = default;

void StoreClient::set(std::string_view key, std::string_view value) {
  std::string asked = request(StoreQuery::kSet);
  append_text(asked, state_->full_key(key));
  append_text(asked, value);
  // A set has no answer, and requests are obeyed in order: the echo shows that it was done.
  asked += request(StoreQuery::kPing);
  append_number(asked, kNonce);
  state_->run("setting", key, [&](Wire& wire) {
    wire.send(asked);
    if (wire.number<std::uint32_t>() != kNonce) throw Failure{"the answer is not one of a store"};
  });
}

std::optional<std::string> StoreClient::get(std::string_view key) {
  const std::string full = state_->full_key(key);
  return state_->run("reading", key, [&](Wire& wire) -> std::optional<std::string> {
    if (!check(wire, full)) return std::nullopt;
    std::string asked = request(StoreQuery::kGet);
    append_text(asked, full);
    wire.send(asked);
    return wire.text();
  });
}

std::int64_t StoreClient::add(std::string_view key, std::int64_t amount) {
  std::string asked = request(StoreQuery::kAdd);
  append_text(asked, state_->full_key(key));
  append_number(asked, amount);
  return state_->run("adding to", key, [&](Wire& wire) {
    wire.send(asked);
    return wire.number<std::int64_t>();
  });
}

std::string StoreClient::compare_set(std::string_view key, std::string_view expected,
                                     std::string_view desired) {
  std::string asked = request(StoreQuery::kCompareSet);
  append_text(asked, state_->full_key(key));
  append_text(asked, expected);
  append_text(asked, desired);
  return state_->run("setting", key, [&](Wire& wire) {
    wire.send(asked);
    return wire.text();
  });
}

bool StoreClient::erase(std::string_view key) {
  std::string asked = request(StoreQuery::kDeleteKey);
  append_text(asked, state_->full_key(key));
  return state_->run("erasing", key, [&](Wire& wire) {
    wire.send(asked);
    return wire.number<std::int64_t>() > 0;
  });
}

std::optional<std::string> StoreClient::wait(std::string_view key, milliseconds timeout) {
  const Deadline end = deadline_after(timeout);
  for (milliseconds look = kFirstLook;; look = std::min(2 * look, kLongestLook)) {
    std::optional<std::string> value = get(key);
    if (value) return value;
    const milliseconds left(milliseconds_until(end));
    if (left <= milliseconds(0)) return std::nullopt;
    std::this_thread::sleep_for(std::min(look, left));
  }
}

std::vector<std::optional<std::string>> StoreClient::get_all(const std::vector<std::string>& keys) {
  if (keys.empty()) return {};
  return state_->run("reading", keys.front(), [&](Wire& wire) {
    // Which are there is asked for each one, since a value that is not there is read as an empty
    // one.
    std::string checks, reads = request(StoreQuery::kMultiGet);
    for (const std::string& key : keys) {
      checks += request(StoreQuery::kCheck);
      append_number<std::uint64_t>(checks, 1);
      append_text(checks, state_->full_key(key));
    }
    wire.send(checks);
    std::vector<std::size_t> there;
    for (std::size_t i = 0; i < keys.size(); ++i)
      if (wire.number<std::uint8_t>() == static_cast<std::uint8_t>(StoreCheckAnswer::kReady))
        there.push_back(i);
    std::vector<std::optional<std::string>> values(keys.size());
    if (there.empty()) return values;
    append_number<std::uint64_t>(reads, there.size());
    for (const std::size_t i : there) append_text(reads, state_->full_key(keys[i]));
    wire.send(reads);
    for (const std::size_t i : there) values[i] = wire.text();
    return values;
  });
}

std::string StoreClient::local_address() const {
  if (!state_->socket) state_->connect(state_->options.timeout);
  return tessera::local_address(state_->socket);
}

}  // namespace tessera
