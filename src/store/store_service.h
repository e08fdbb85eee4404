// The store behind its sockets. Owns: the connections, their unfinished requests and unread
// answers, and the limits on all of them together. Not: its thread (store_server.cpp) or process
// (store_process.cpp). Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>

#include "store/socket.h"
#include "store/store_data.h"
#include "store/store_request.h"

namespace tessera {

class StoreService {
 public:
  // `listener` as listen_on made it. Error{kComm}: no descriptors are left.
  StoreService(Socket listener, const StoreLimits& limits);
  ~StoreService();
  StoreService(const StoreService&) = delete;
  StoreService& operator=(const StoreService&) = delete;

  void wake_by(int descriptor);  // serve_once ends early while it can be read; it is not read here

  // Does what there is to do, and waits for it at most `timeout_ms` (-1: until there is something).
  // Whatever a client does, this does not throw.
  void serve_once(int timeout_ms) noexcept;

  // Connections that have introduced themselves.
  std::size_t clients() const { return connections_.size() - strangers_.size(); }

 private:
  using Id = StoreData::Client;
  struct Connection {
    Connection(Socket accepted, const StoreLimits& limits)
        : socket(std::move(accepted)), reader(limits) {}
    Socket socket;
    StoreRequestReader reader;
    std::string answer;
    std::size_t sent = 0;        // of the answer
    std::size_t held_bytes = 0;  // as counted in held_bytes_
    std::uint32_t events = 0;    // that the kernel is to report
  };

  void accept_all();
  void accept(Socket socket);
  bool drop_oldest_stranger();
  void handle(Id id, std::uint32_t events);
  bool receive(Id id, Connection& connection);
  void obey(Id id, Connection& connection, StoreRequest&& request);
  void send_woken();
  bool send(Connection& connection);
  bool settle(Id id, Connection& connection);
  void close(Id id);
  void listen(bool on);

  Socket listener_, poll_;
  const StoreLimits limits_;
  StoreData data_;
  std::unordered_map<Id, Connection> connections_;
  std::set<Id> strangers_;  // have not introduced themselves; the oldest is the first
  Id last_id_;
  std::size_t held_bytes_ = 0;  // of requests and answers on the way
  bool listening_ = false;
};

}  // namespace tessera
