#include "store/store_service.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <exception>
#include <vector>

#include "base/error.h"

namespace tessera {
namespace {

constexpr std::uint64_t kListenerId = 0, kWakeId = 1;
constexpr std::size_t kChunkBytes = std::size_t{64} << 10;
// Who has not read this much of its answers is not heard until it has.
constexpr std::size_t kUnreadBytes = std::size_t{1} << 20;
constexpr int kAcceptedAtOnce = 64;
// How long nobody is accepted when the process has no descriptors left.
constexpr int kPauseMs = 100;

bool grows(StoreQuery query) {
  switch (query) {
    case StoreQuery::kSet:
    case StoreQuery::kCompareSet:
    case StoreQuery::kAdd:
    case StoreQuery::kAppend:
    case StoreQuery::kMultiSet:
    case StoreQuery::kQueuePush:
    case StoreQuery::kWait:
    case StoreQuery::kBarrier: return true;
    default: return false;
  }
}

}  // namespace

StoreService::StoreService(Socket listener, const StoreLimits& limits)
    : listener_(std::move(listener)),
      poll_(::epoll_create1(EPOLL_CLOEXEC)),
      limits_(limits),
      data_(limits),
      last_id_(kWakeId) {
  if (!poll_)
    throw Error(ErrorKind::kComm,
                std::string("the job's store cannot start: ") + std::strerror(errno));
  listen(true);
}

StoreService::~StoreService() = default;

void StoreService::wake_by(int descriptor) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = kWakeId;
  if (::epoll_ctl(poll_.get(), EPOLL_CTL_ADD, descriptor, &event) != 0)
    throw Error(ErrorKind::kComm,
                std::string("the job's store cannot start: ") + std::strerror(errno));
}

void StoreService::listen(bool on) {
  if (on == listening_) return;
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = kListenerId;
  if (::epoll_ctl(poll_.get(), on ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, listener_.get(), &event) == 0)
    listening_ = on;
}

void StoreService::serve_once(int timeout_ms) noexcept {
  listen(true);
  if (!listening_ && (timeout_ms < 0 || timeout_ms > kPauseMs)) timeout_ms = kPauseMs;
  std::array<epoll_event, 64> events;
  const int count = ::epoll_wait(poll_.get(), events.data(), events.size(), timeout_ms);
  for (int i = 0; i < count; ++i) {
    const Id id = events[i].data.u64;
    if (id == kListenerId)
      accept_all();
    else if (id != kWakeId)
      handle(id, events[i].events);
  }
}

void StoreService::accept_all() {
  for (int i = 0; i < kAcceptedAtOnce; ++i) {
    Socket socket = accept_from(listener_);
    if (socket) {
      accept(std::move(socket));
      continue;
    }
    const bool exhausted =
        errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
    if (!exhausted) return;
    if (drop_oldest_stranger()) continue;
    listen(false);  // else the kernel would report the waiting one again and again
    return;
  }
}

void StoreService::accept(Socket socket) {
  if (connections_.size() >= limits_.connections && !drop_oldest_stranger()) return;
  const Id id = ++last_id_;
  try {
    strangers_.insert(id);
    Connection& connection = connections_.try_emplace(id, std::move(socket), limits_).first->second;
    epoll_event event{};
    event.events = connection.events = EPOLLIN;
    event.data.u64 = id;
    if (::epoll_ctl(poll_.get(), EPOLL_CTL_ADD, connection.socket.get(), &event) != 0) close(id);
  } catch (const std::exception&) {
    close(id);
  }
}

bool StoreService::drop_oldest_stranger() {
  if (strangers_.empty()) return false;
  close(*strangers_.begin());
  return true;
}

void StoreService::close(Id id) {
  data_.forget(id);
  strangers_.erase(id);
  const auto found = connections_.find(id);
  if (found == connections_.end()) return;
  held_bytes_ -= found->second.held_bytes;
  connections_.erase(found);  // closing the descriptor takes it out of the poll
}

void StoreService::handle(Id id, std::uint32_t events) {
  const auto found = connections_.find(id);
  if (found == connections_.end()) return;  // closed since the kernel reported it
  Connection& connection = found->second;
  bool good = true;
  try {
    if ((events & EPOLLIN) != 0)
      good = receive(id, connection);
    else if ((events & (EPOLLERR | EPOLLHUP)) != 0)
      good = false;
    good = good && send(connection) && settle(id, connection);
  } catch (const std::exception&) {
    good = false;  // it asked for what it may not, or there is no memory for it
  }
  if (!good) close(id);
  send_woken();
}

bool StoreService::receive(Id id, Connection& connection) {
  std::array<char, kChunkBytes> chunk;
  const ssize_t count = ::recv(connection.socket.get(), chunk.data(), chunk.size(), 0);
  if (count < 0) return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
  if (count == 0) return false;
  std::string_view input(chunk.data(), static_cast<std::size_t>(count));
  while (!input.empty()) {
    // A stranger's first byte decides: it may not make the store hold anything.
    if (strangers_.contains(id) && connection.reader.at_start() &&
        static_cast<unsigned char>(input.front()) !=
            static_cast<unsigned char>(StoreQuery::kValidate))
      return false;
    std::optional<StoreRequest> request = connection.reader.read(input);
    if (request) obey(id, connection, std::move(*request));
  }
  return true;
}

void StoreService::obey(Id id, Connection& connection, StoreRequest&& request) {
  if (strangers_.contains(id)) {
    if (static_cast<std::uint32_t>(request.number) != kStoreMagic)
      throw Error(ErrorKind::kComm, "a client of the store introduces itself wrongly");
    strangers_.erase(id);
    return;
  }
  if (grows(request.query)) {
    std::size_t bytes = data_.held_bytes() + held_bytes_;
    for (const std::string& text : request.texts) bytes += text.size();
    if (bytes > limits_.total_bytes) throw Error(ErrorKind::kComm, "the store is full");
  }
  data_.handle(id, std::move(request), connection.answer);
}

void StoreService::send_woken() {
  for (const Id id : data_.take_woken()) {
    const auto found = connections_.find(id);
    if (found == connections_.end()) continue;
    bool good = false;
    try {
      found->second.answer.push_back(static_cast<char>(StoreWaitAnswer::kStopWaiting));
      good = send(found->second) && settle(id, found->second);
    } catch (const std::exception&) {
      // No memory for one byte: below.
    }
    if (!good) close(id);
  }
}

bool StoreService::send(Connection& connection) {
  std::string& answer = connection.answer;
  while (connection.sent < answer.size()) {
    const ssize_t count = ::send(connection.socket.get(), answer.data() + connection.sent,
                                 answer.size() - connection.sent, MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return errno == EAGAIN || errno == EWOULDBLOCK;
    connection.sent += static_cast<std::size_t>(count);
  }
  connection.sent = 0;
  answer.clear();
  if (answer.capacity() > kChunkBytes) answer.shrink_to_fit();
  return true;
}

// Counts what the connection holds now and tells the kernel what it waits for. False: it holds more
// than there is room for.
bool StoreService::settle(Id id, Connection& connection) {
  held_bytes_ -= connection.held_bytes;
  connection.held_bytes = connection.reader.held_bytes() + connection.answer.size();
  held_bytes_ += connection.held_bytes;
  if (connection.held_bytes > kChunkBytes && data_.held_bytes() + held_bytes_ > limits_.total_bytes)
    return false;
  epoll_event event{};
  event.events = (connection.answer.size() - connection.sent < kUnreadBytes ? EPOLLIN : 0u) |
                 (connection.answer.empty() ? 0u : EPOLLOUT);
  event.data.u64 = id;
  if (event.events == connection.events) return true;
  connection.events = event.events;
  return ::epoll_ctl(poll_.get(), EPOLL_CTL_MOD, connection.socket.get(), &event) == 0;
}

}  // namespace tessera
