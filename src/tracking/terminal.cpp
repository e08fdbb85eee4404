#include "tracking/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdlib>

namespace tessera {
namespace {

constexpr int kDefaultColumns = 80;
constexpr std::string_view kEraseLine = "\r\x1b[2K";

std::string_view environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string_view{} : std::string_view{value};
}

bool locale_is_utf8() {
  // The first that is set decides, as in setlocale(3).
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    std::string value(environment(name));
    if (value.empty()) continue;
    std::transform(value.begin(), value.end(), value.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return value.find("utf-8") != std::string::npos || value.find("utf8") != std::string::npos;
  }
  return false;
}

}  // namespace

TerminalTraits detect_terminal_traits(int file_descriptor) {
  TerminalTraits traits;
  const std::string_view term = environment("TERM");
  traits.interactive = ::isatty(file_descriptor) == 1 && !term.empty() && term != "dumb";
  traits.colour = traits.interactive && environment("NO_COLOR").empty();
  traits.utf8 = locale_is_utf8();
  return traits;
}

Terminal::Terminal(int file_descriptor)
    : Terminal(file_descriptor, detect_terminal_traits(file_descriptor), 0) {}

Terminal::Terminal(int file_descriptor, TerminalTraits traits, int columns)
    : file_descriptor_(file_descriptor), traits_(traits), columns_(columns) {}

Terminal::~Terminal() {
  if (!status_.empty()) write("\n");
}

int Terminal::columns() const {
  if (columns_ > 0) return columns_;
  // Asked each time: the window may have been resized.
  struct winsize size {};
  if (::ioctl(file_descriptor_, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return kDefaultColumns;
}

void Terminal::print(std::string_view line) {
  const std::lock_guard lock(mutex_);
  std::string bytes;  // one write, so that lines of several processes do not mix
  if (!status_.empty()) bytes += kEraseLine;
  bytes += line;
  bytes += '\n';
  bytes += status_;
  write(bytes);
}

void Terminal::set_status(std::string_view text) {
  const std::lock_guard lock(mutex_);
  if (!traits_.interactive || text == status_) return;
  status_ = text;
  write(std::string(kEraseLine) + status_);
}

void Terminal::write(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(file_descriptor_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;  // nobody reads: not a reason to stop
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
}

}  // namespace tessera
