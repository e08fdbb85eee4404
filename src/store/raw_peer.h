// A peer of the store that says what a test wants, byte by byte. For tests.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <string>
#include <string_view>

#include "store/socket.h"
#include "store/store_protocol.h"

namespace tessera {

class RawPeer {
 public:
  explicit RawPeer(int port) {
    std::string reason;
    socket_ = connect_once("127.0.0.1", port, in(10000), reason);
    if (!socket_) ADD_FAILURE() << reason;
  }

  static std::string greeting() {
    std::string bytes(1, static_cast<char>(StoreQuery::kValidate));
    append_number(bytes, kStoreMagic);
    return bytes;
  }

  // As much as the other end takes.
  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t count = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (count > 0)
        bytes.remove_prefix(static_cast<std::size_t>(count));
      else if (errno != EAGAIN || !ready(POLLOUT, 500))
        return false;
    }
    return true;
  }

  std::string receive(std::size_t size) {
    std::string bytes(size, 0);
    std::size_t done = 0;
    while (done < size) {
      const ssize_t count = ::recv(socket_.get(), bytes.data() + done, size - done, 0);
      if (count > 0)
        done += static_cast<std::size_t>(count);
      else if (count == 0 || errno != EAGAIN || !ready(POLLIN, 5000))
        break;
    }
    bytes.resize(done);
    return bytes;
  }

  // Whether the other end closes within the time; what it still says is not looked at.
  bool is_closed(int timeout_ms = 5000) {
    char bytes[4096];
    const Deadline end = in(timeout_ms);
    while (true) {
      const ssize_t count = ::recv(socket_.get(), bytes, sizeof bytes, 0);
      if (count == 0 || (count < 0 && errno != EAGAIN)) return true;
      if (count < 0 && !ready(POLLIN, milliseconds_until(end))) return false;
    }
  }

  // Whether there is anything to read within the time.
  bool hears(int timeout_ms) { return ready(POLLIN, timeout_ms); }

  void close() { socket_.close(); }
  int descriptor() const { return socket_.get(); }

 private:
  static Deadline in(int milliseconds) {
    return std::chrono::steady_clock::now() + std::chrono::milliseconds(milliseconds);
  }
  bool ready(short events, int timeout_ms) {
    pollfd wait{socket_.get(), events, 0};
    return ::poll(&wait, 1, timeout_ms) > 0;
  }

  Socket socket_;
};

// A request from its parts.
class Request {
 public:
  explicit Request(StoreQuery query) : bytes_(1, static_cast<char>(query)) {}
  explicit Request(int query) : bytes_(1, static_cast<char>(query)) {}
  Request& text(std::string_view text) {
    append_text(bytes_, text);
    return *this;
  }
  Request& number(std::int64_t number) {
    append_number(bytes_, number);
    return *this;
  }
  Request& nonce(std::uint32_t number) {
    append_number(bytes_, number);
    return *this;
  }
  operator std::string_view() const { return bytes_; }  // NOLINT(google-explicit-constructor)

 private:
  std::string bytes_;
};

}  // namespace tessera
