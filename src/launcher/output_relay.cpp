#include "launcher/output_relay.h"

#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <list>
#include <mutex>
#include <thread>
#include <vector>

#include "base/error.h"

namespace tessera {
namespace {

// A line longer than this is shown in pieces: a rank that never ends its line must not fill memory.
constexpr std::size_t kLongestLine = 1 << 16;

// A process left behind may write for ever.
constexpr std::chrono::seconds kLongestFinish{2};

// False: nobody reads any more, or the disk is full.
bool write_all(int descriptor, const char* data, std::size_t size) {
  while (size > 0) {
    const ssize_t count = ::write(descriptor, data, size);
    if (count < 0) {
      if (errno == EINTR) continue;
      if (errno != EAGAIN) return false;
      pollfd wait{descriptor, POLLOUT, 0};  // a terminal set to non-blocking by somebody else
      ::poll(&wait, 1, 1000);
      continue;
    }
    data += count;
    size -= static_cast<std::size_t>(count);
  }
  return true;
}

struct Stream {
  int pipe = -1, file = -1, console = -1;
  bool terminal = false;
  char previous = 0;
  std::string prefix, line;

  // Another rank may have left a progress line on the terminal's last row: it is wiped, not mixed.
  void show_line() {
    // Tessera's own ranks begin some lines with the same words.
    const bool has_prefix = !prefix.empty() && line.starts_with(prefix);
    const std::string text =
        (terminal ? "\r\033[K" : "") + (has_prefix ? "" : prefix) + line + "\n";
    line.clear();
    if (console >= 0 && !write_all(console, text.data(), text.size())) console = -1;
  }

  void take(const char* data, std::size_t size) {
    if (file >= 0) write_all(file, data, size);
    if (console < 0) return;
    for (std::size_t i = 0; i < size; ++i) {
      // A progress bar ends its states by \r; \r\n ends one line.
      const bool end = data[i] == '\n' || data[i] == '\r';
      const bool second_half = data[i] == '\n' && previous == '\r';
      previous = data[i];
      if (!end) line += data[i];
      if ((end && !second_half) || line.size() >= kLongestLine) show_line();
    }
  }

  // False at the end of the stream.
  bool read_some() {
    char buffer[1 << 16];
    const ssize_t count = ::read(pipe, buffer, sizeof buffer);
    if (count > 0) take(buffer, static_cast<std::size_t>(count));
    return count > 0 || (count < 0 && (errno == EAGAIN || errno == EINTR));
  }

  void close_all() {
    if (!line.empty()) show_line();
    ::close(pipe);
    if (file >= 0) ::close(file);
    pipe = file = -1;
  }
};

}  // namespace

struct OutputRelay::State {
  std::mutex mutex;
  std::vector<Stream> arriving;
  std::atomic<bool> finishing{false};
  int wake = -1;
  std::thread thread;

  void run();
};

void OutputRelay::State::run() {
  std::list<Stream> streams;
  auto give_up = std::chrono::steady_clock::time_point::max();
  for (;;) {
    if (finishing && give_up == std::chrono::steady_clock::time_point::max())
      give_up = std::chrono::steady_clock::now() + kLongestFinish;
    const bool last = finishing;  // read before the poll, so that a full round follows it
    if (last && std::chrono::steady_clock::now() > give_up) break;
    {
      const std::lock_guard lock(mutex);
      streams.insert(streams.end(), arriving.begin(), arriving.end());
      arriving.clear();
    }
    std::vector<pollfd> polled = {{wake, POLLIN, 0}};
    for (const Stream& stream : streams) polled.push_back({stream.pipe, POLLIN, 0});
    const int ready = ::poll(polled.data(), polled.size(), last ? 0 : -1);
    if (polled[0].revents != 0) {
      eventfd_t ignored;
      eventfd_read(wake, &ignored);
    }
    bool any = false;
    std::size_t i = 1;
    for (auto stream = streams.begin(); stream != streams.end(); ++i) {
      if (ready > 0 && polled[i].revents != 0) {
        any = true;
        if (!stream->read_some()) {
          stream->close_all();
          stream = streams.erase(stream);
          continue;
        }
      }
      ++stream;
    }
    if (last && !any) break;
  }
  for (Stream& stream : streams) stream.close_all();
}

OutputRelay::OutputRelay() : state_(std::make_unique<State>()) {
  state_->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (state_->wake < 0) {
    throw Error(ErrorKind::kResource,
                std::string("output cannot be passed on: ") + strerror(errno));
  }
  state_->thread = std::thread([state = state_.get()] { state->run(); });
}

OutputRelay::~OutputRelay() {
  finish();
  ::close(state_->wake);
}

int OutputRelay::add(const Target& target) {
  Stream stream;
  if (!target.file.empty()) {
    stream.file = ::open(target.file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (stream.file < 0) {
      throw Error(ErrorKind::kIo, std::string("a log file cannot be written: ") + strerror(errno),
                  target.file.string(), "Choose another folder with --log-dir.");
    }
  }
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    const int code = errno;
    if (stream.file >= 0) ::close(stream.file);
    throw Error(ErrorKind::kResource, std::string("no pipe can be made: ") + strerror(code));
  }
  ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
  stream.pipe = ends[0];
  stream.console = target.console;
  stream.terminal = target.console >= 0 && ::isatty(target.console) == 1;
  stream.prefix = target.prefix;
  {
    const std::lock_guard lock(state_->mutex);
    state_->arriving.push_back(std::move(stream));
  }
  eventfd_write(state_->wake, 1);
  return ends[1];
}

void OutputRelay::finish() {
  if (!state_->thread.joinable()) return;
  state_->finishing = true;
  eventfd_write(state_->wake, 1);
  state_->thread.join();
}

}  // namespace tessera
