// The job's key-value store, by which ranks and agents find each other. Owns: the server side of
// the wire protocol of PyTorch's TCPStore (so that c10d's own client, torchrun's workers and Python
// scripts can use it). Not: what the keys mean. No torch.
//
// It is hosted outside the ranks (in the launcher, or in a process of its own), because a store
// inside rank 0 dies or freezes with it.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

namespace tessera {

// What clients may use; one that goes beyond is disconnected, and others notice nothing.
struct StoreLimits {
  std::size_t connections = 4096;  // one more drives out the oldest that has not introduced itself
  std::size_t key_bytes = std::size_t{8} << 10;
  std::size_t value_bytes = std::size_t{16} << 20;
  std::size_t keys_of_a_request = std::size_t{128} << 10;
  std::size_t answer_bytes = std::size_t{64} << 20;
  std::size_t total_bytes = std::size_t{256} << 20;  // values, and requests and answers on the way
};

struct StoreServerOptions {
  std::string address = "127.0.0.1";  // the interface to listen on, and only there
  int port = 0;                       // 0: any free one
  StoreLimits limits;
};

// Serves from a thread of its own until destroyed. Garbage, half-open connections, port scans and
// slow senders cost one connection each and change nothing for others; a client that sends too
// much, or too many connections, are refused. Raises no signal, and its thread receives none.
class StoreServer {
 public:
  // Error{kComm} that names address and port: in use, not an address of this host, no permission.
  explicit StoreServer(const StoreServerOptions& options);
  ~StoreServer();
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

  const std::string& address() const;
  int port() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// For ranks without an agent (srun, mpirun): rank 0 calls this before it starts any thread. Forks a
// process that hosts the store, survives the caller's death by `linger_seconds` (so that the others
// can read why), and ends when the caller has ended and no client is left, at the latest then. It
// does not hear the signals of the caller's terminal. Returns the port when the store listens.
// Error{kComm} as above.
int fork_store_server(const StoreServerOptions& options, double linger_seconds);

}  // namespace tessera
