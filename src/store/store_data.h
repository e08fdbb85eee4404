// What the store holds and what each request does to it. Owns: keys, queues, and who waits for
// which key. Not: sockets (store_service.h). Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "store/store_request.h"

namespace tessera {

class StoreData {
 public:
  using Client = std::uint64_t;  // the service's number of a connection

  explicit StoreData(const StoreLimits& limits) : limits_(limits) {}

  // Does what `client` asks and appends the answer, if there is one now, to `answer`.
  // Error{kComm}: it asks for what cannot be done (adding to a text, an answer beyond the limit).
  void handle(Client client, StoreRequest&& request, std::string& answer);

  // Others who waited for what has just been set: each is to be sent kStopWaiting.
  std::vector<Client> take_woken();

  void forget(Client client);  // it waits no longer

  std::size_t held_bytes() const { return held_bytes_; }

 private:
  bool has(const std::string& key) const;
  void assign(const std::string& key, std::string value);
  void put(const std::string& key, std::string value);  // assigns and wakes who waits
  void append(const std::string& key, const std::string& more);
  void erase(const std::string& key, std::string& answer);
  void compare_set(std::vector<std::string>& texts, std::string& answer);
  std::int64_t sum(const std::string& key, std::int64_t amount) const;
  void get_many(const std::vector<std::string>& keys, std::string& answer);
  void list_keys(std::string& answer);
  void wait(Client client, const std::vector<std::string>& keys, std::string& answer);
  void barrier(Client client, const std::string& key, std::int64_t world_size, std::string& answer);
  void push(const std::string& key, std::string value);
  void pop(const std::string& key, std::string& answer);
  void await(Client client, const std::string& key);
  void wake(const std::string& key, std::size_t most);

  const StoreLimits limits_;
  std::unordered_map<std::string, std::string> values_;
  std::unordered_map<std::string, std::deque<std::string>> queues_;
  std::unordered_map<std::string, std::deque<Client>> waiters_;  // of a key, in order of arrival
  std::unordered_map<Client, std::unordered_set<std::string>> awaited_;  // keys not there yet
  std::vector<Client> woken_;
  std::size_t held_bytes_ = 0;
};

}  // namespace tessera
