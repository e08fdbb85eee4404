#include "store/store_server.h"

#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <system_error>
#include <thread>
#include <utility>

#include "base/error.h"
#include "store/socket.h"
#include "store/store_service.h"

namespace tessera {

struct StoreServer::State {
  explicit State(Socket listener, const StoreLimits& limits)
      : address(local_address(listener)),
        port(local_port(listener)),
        stop_event(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
        service(std::move(listener), limits) {
    if (!stop_event)
      throw Error(ErrorKind::kComm,
                  std::string("the job's store cannot start: ") + std::strerror(errno));
    service.wake_by(stop_event.get());
    start();
  }

  ~State() {
    stop = true;
    const std::uint64_t one = 1;
    // Fails only where the counter is full, and then it wakes as well.
    const ssize_t written = ::write(stop_event.get(), &one, sizeof one);
    (void)written;
    thread.join();
  }

  void start() {
    // Signals are for the threads that know what to do with them: a thread begins with the mask of
    // the one that makes it.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
      thread = std::thread([this] {
        while (!stop) service.serve_once(-1);
      });
    } catch (const std::system_error& error) {
      pthread_sigmask(SIG_SETMASK, &before, nullptr);
      throw Error(ErrorKind::kResource,
                  std::string("the job's store gets no thread: ") + error.what());
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }

  const std::string address;
  const int port;
  Socket stop_event;
  StoreService service;
  std::atomic<bool> stop{false};
  std::thread thread;
};

StoreServer::StoreServer(const StoreServerOptions& options)
    : state_(std::make_unique<State>(listen_on(options.address, options.port), options.limits)) {}

StoreServer::~StoreServer() = default;

const std::string& StoreServer::address() const { return state_->address; }

int StoreServer::port() const { return state_->port; }

}  // namespace tessera
