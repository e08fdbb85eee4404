// A client of the job's store (store_server.h, or torch's own TCPStore server under torchrun).
// Owns: one connection and its deadlines. No torch.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

// Not thread-safe: one client a thread. Every call is done or throws Error{kComm} (naming host,
// port and key) within `timeout` of the options, wait() within that beyond its own. A call that
// threw may have been obeyed or not; the next one connects anew.
class StoreClient {
 public:
  struct Options {
    std::string host;
    int port = 0;
    std::string prefix;  // put before every key
    // Tries again and again until then: the server may start later.
    std::chrono::milliseconds connect_timeout{60000};
    std::chrono::milliseconds timeout{10000};  // of one request
  };
  explicit StoreClient(const Options& options);
  ~StoreClient();
  StoreClient(StoreClient&&) noexcept;
  StoreClient& operator=(StoreClient&&) noexcept;

  void set(std::string_view key, std::string_view value);
  std::optional<std::string> get(std::string_view key);  // nothing where there is no such key
  std::int64_t add(std::string_view key, std::int64_t amount);  // the new value; begins at 0
  // Sets `desired` if the value is `expected` (empty: if there is none yet); the value afterwards,
  // or `expected` where there is none and that was not expected.
  std::string compare_set(std::string_view key, std::string_view expected,
                          std::string_view desired);
  bool erase(std::string_view key);  // whether it was there
  // The value as soon as there is one; nothing when `timeout` is over. Asks again and again (at
  // most every 50 ms), so that it can be left at any time.
  std::optional<std::string> wait(std::string_view key, std::chrono::milliseconds timeout);
  std::vector<std::optional<std::string>> get_all(const std::vector<std::string>& keys);

  // This host's address on the way to the store: what other hosts can reach it by.
  std::string local_address() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tessera
