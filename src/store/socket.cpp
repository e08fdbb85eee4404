#include "store/socket.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"

namespace tessera {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// One of several addresses of a name must not use up all the time.
constexpr milliseconds kTryOfOneAddress{5000};

struct Address {
  sockaddr_storage storage{};
  socklen_t size = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

std::string system_text(int number) { return std::strerror(number); }

void set_option(int socket, int level, int name, int value) {
  // A refused option costs speed or the notice of a dead peer, never correctness.
  (void)::setsockopt(socket, level, name, &value, sizeof value);
}

// A peer that vanished without a word is noticed within about a minute.
void watch_for_dead_peer(int socket) {
  set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(socket, IPPROTO_TCP, TCP_KEEPIDLE, 30);
  set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, 10);
  set_option(socket, IPPROTO_TCP, TCP_KEEPCNT, 3);
  set_option(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, 60000);
}

int look_up(const std::string& host, int port, int flags, std::vector<Address>& found) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const int error = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list);
  if (error != 0) return error;
  for (const addrinfo* item = list; item != nullptr; item = item->ai_next) {
    Address address;
    address.size = item->ai_addrlen;
    std::memcpy(&address.storage, item->ai_addr, item->ai_addrlen);
    found.push_back(address);
  }
  ::freeaddrinfo(list);
  return 0;
}

// A name server may leave its client waiting for longer than there is time, and the system's
// function cannot be left: it runs in a thread of its own, which outlives the call then.
int look_up_until(const std::string& host, int port, Deadline deadline,
                  std::vector<Address>& found) {
  if (look_up(host, port, AI_NUMERICHOST, found) == 0) return 0;
  struct Shared {
    std::mutex mutex;
    std::condition_variable done_changed;
    bool done = false;
    int error = 0;
    std::vector<Address> found;
  };
  const auto shared = std::make_shared<Shared>();
  try {
    std::thread([shared, host, port] {
      std::vector<Address> result;
      const int error = look_up(host, port, 0, result);
      const std::lock_guard<std::mutex> lock(shared->mutex);
      shared->found = std::move(result);
      shared->error = error;
      shared->done = true;
      shared->done_changed.notify_one();
    }).detach();
  } catch (const std::system_error&) {
    return EAI_MEMORY;
  }
  std::unique_lock<std::mutex> lock(shared->mutex);
  if (!shared->done_changed.wait_until(lock, deadline, [&] { return shared->done; }))
    return EAI_AGAIN;
  found = std::move(shared->found);
  return shared->error;
}

bool same_end(int socket) {
  Address here, there;
  here.size = there.size = sizeof(sockaddr_storage);
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&here.storage), &here.size) != 0 ||
      ::getpeername(socket, reinterpret_cast<sockaddr*>(&there.storage), &there.size) != 0)
    return false;
  return here.size == there.size && std::memcmp(&here.storage, &there.storage, here.size) == 0;
}

Socket connect_to(const Address& address, Deadline deadline, std::string& reason) {
  Socket socket(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket) {
    reason = system_text(errno);
    return Socket();
  }
  watch_for_dead_peer(socket.get());
  int error = ::connect(socket.get(), address.get(), address.size) == 0 ? 0 : errno;
  if (error == EINPROGRESS || error == EINTR) {
    pollfd wait{socket.get(), POLLOUT, 0};
    while (::poll(&wait, 1, milliseconds_until(deadline)) < 0 && errno == EINTR) {
    }
    socklen_t size = sizeof error;
    if (wait.revents == 0)
      error = ETIMEDOUT;
    else if (::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0)
      error = errno;
  }
  // A port from the range that clients get theirs from may be given to this very socket, which
  // then speaks with itself.
  if (error == 0 && same_end(socket.get())) error = ECONNREFUSED;
  if (error == 0) return socket;
  reason = system_text(error);
  return Socket();
}

Address own_end(const Socket& socket) {
  Address address;
  address.size = sizeof address.storage;
  if (::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address.storage), &address.size) !=
      0)
    throw Error(ErrorKind::kComm, "the address of a socket is not known: " + system_text(errno));
  return address;
}

std::string advice_for_listening(int error) {
  switch (error) {
    case EADDRINUSE:
      return "Another program, perhaps another job, listens there: choose another port by "
             "MASTER_PORT or --master-port.";
    case EADDRNOTAVAIL:
      return "This is no address of this host: `ip address` lists them; choose by MASTER_ADDR or "
             "--master-addr.";
    case EACCES: return "Ports below 1024 need privileges: choose a port from 1024 to 65535.";
    default: return "Choose another address and port by MASTER_ADDR and MASTER_PORT.";
  }
}

}  // namespace

Socket& Socket::operator=(Socket&& other) noexcept {
  if (this != &other) {
    close();
    descriptor_ = other.release();
  }
  return *this;
}

int Socket::release() { return std::exchange(descriptor_, -1); }

void Socket::close() {
  if (descriptor_ >= 0) ::close(release());
}

Deadline deadline_after(milliseconds time) {
  return steady_clock::now() + std::min<milliseconds>(time, std::chrono::hours(24 * 365));
}

int milliseconds_until(Deadline deadline) {
  const auto left = std::chrono::ceil<milliseconds>(deadline - steady_clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 1 << 30));
}

Socket listen_on(const std::string& address, int port) {
  const std::string where = address + ":" + std::to_string(port);
  const std::string what = "the job's store cannot listen: ";
  if (port < 0 || port > 65535)
    throw Error(ErrorKind::kComm, what + "there is no such port", where,
                "Choose a port from 1024 to 65535 by MASTER_PORT or --master-port.");
  std::vector<Address> found;
  const int unknown = look_up(address, port, AI_PASSIVE, found);
  if (unknown != 0)
    throw Error(ErrorKind::kComm, what + ::gai_strerror(unknown), where,
                advice_for_listening(EADDRNOTAVAIL));
  int error = EADDRNOTAVAIL;
  for (const Address& candidate : found) {
    Socket socket(
        ::socket(candidate.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    // Without this a port stays closed for a minute after its last server.
    if (socket) set_option(socket.get(), SOL_SOCKET, SO_REUSEADDR, 1);
    if (socket && ::bind(socket.get(), candidate.get(), candidate.size) == 0 &&
        ::listen(socket.get(), SOMAXCONN) == 0)
      return socket;
    error = errno;
  }
  throw Error(ErrorKind::kComm, what + system_text(error), where, advice_for_listening(error));
}

Socket accept_from(const Socket& listener) {
  Socket socket;
  do {
    socket = Socket(::accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  } while (!socket && (errno == EINTR || errno == ECONNABORTED));
  if (socket) watch_for_dead_peer(socket.get());
  return socket;
}

Socket connect_once(const std::string& host, int port, Deadline deadline, std::string& reason) {
  std::vector<Address> found;
  const int unknown = look_up_until(host, port, deadline, found);
  if (unknown != 0) {
    reason = std::string("its name is not known: ") + ::gai_strerror(unknown);
    return Socket();
  }
  for (const Address& address : found) {
    const Deadline until =
        found.size() == 1 ? deadline : std::min(deadline, steady_clock::now() + kTryOfOneAddress);
    Socket socket = connect_to(address, until, reason);
    if (socket) return socket;
  }
  return Socket();
}

std::string local_address(const Socket& socket) {
  const Address address = own_end(socket);
  char text[NI_MAXHOST] = {};
  const int error =
      ::getnameinfo(address.get(), address.size, text, sizeof text, nullptr, 0, NI_NUMERICHOST);
  if (error != 0)
    throw Error(ErrorKind::kComm,
                std::string("the address of a socket is not known: ") + ::gai_strerror(error));
  return text;
}

int local_port(const Socket& socket) {
  const Address address = own_end(socket);
  if (address.storage.ss_family == AF_INET6)
    return ntohs(reinterpret_cast<const sockaddr_in6*>(&address.storage)->sin6_port);
  return ntohs(reinterpret_cast<const sockaddr_in*>(&address.storage)->sin_port);
}

}  // namespace tessera
