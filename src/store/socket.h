// TCP sockets of the store. Owns: descriptors, addresses, listening and connecting within a
// deadline. Not: what is said over them. No call here raises SIGPIPE or is ended by a signal.
#pragma once

#include <chrono>
#include <string>

namespace tessera {

// A descriptor that is closed with its object; -1: none.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int descriptor) : descriptor_(descriptor) {}
  ~Socket() { close(); }
  Socket(Socket&& other) noexcept : descriptor_(other.release()) {}
  Socket& operator=(Socket&& other) noexcept;

  int get() const { return descriptor_; }
  explicit operator bool() const { return descriptor_ >= 0; }
  int release();
  void close();

 private:
  int descriptor_ = -1;
};

using Deadline = std::chrono::steady_clock::time_point;
Deadline deadline_after(std::chrono::milliseconds time);  // a year at most, so that none overflows
int milliseconds_until(Deadline deadline);                // for poll: rounded up, 0 when it is over

// Without blocking, closed on exec. Error{kComm} that names address and port.
Socket listen_on(const std::string& address, int port);
// The next connection, without blocking, with keep-alive; none: nobody waits, or errno says why.
Socket accept_from(const Socket& listener);

// One try: resolves the name and connects. Without blocking, closed on exec. No socket: `reason`
// says why.
Socket connect_once(const std::string& host, int port, Deadline deadline, std::string& reason);

std::string local_address(const Socket& socket);  // numeric, without the port
int local_port(const Socket& socket);

}  // namespace tessera
