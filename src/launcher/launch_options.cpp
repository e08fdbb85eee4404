#include "launcher/launch_options.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "base/error.h"
#include "base/registry.h"

namespace tessera {
namespace {

std::optional<int> whole_number(std::string_view text) {
  int value = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || result.ec != std::errc() || result.ptr != text.data() + text.size())
    return {};
  return value;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    const std::size_t at = text.find(separator);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

[[noreturn]] void refuse(std::string_view option, std::string_view text, const std::string& valid) {
  throw Error(ErrorKind::kUsage,
              "--" + std::string(option) + " does not understand '" + std::string(text) + "'", {},
              valid);
}

}  // namespace

int StreamChoice::of(int local_rank) const {
  if (each.empty()) return all;
  const auto found = each.find(local_rank);
  return found == each.end() ? 0 : found->second;
}

bool StreamChoice::any() const {
  return all != 0 || std::any_of(each.begin(), each.end(), [](auto& e) { return e.second != 0; });
}

NodeRange parse_node_range(std::string_view text) {
  const auto parts = split(text, ':');
  const auto min = whole_number(parts[0]);
  const auto max = parts.size() == 2 ? whole_number(parts[1]) : min;
  if (parts.size() > 2 || !min || !max || *min < 1 || *max < *min) {
    refuse("nnodes", text, "Give a number of nodes, or MIN:MAX with 1 <= MIN <= MAX.");
  }
  return {*min, *max};
}

StreamChoice parse_stream_choice(std::string_view option, std::string_view text) {
  const std::string valid =
      "Give 0 (none), 1 (stdout), 2 (stderr) or 3 (both), or a list by local rank such as "
      "0:1,1:2.";
  const auto stream = [&](std::string_view word) {
    const auto value = whole_number(word);
    if (!value || *value < 0 || *value > 3) refuse(option, text, valid);
    return *value;
  };
  StreamChoice choice;
  if (text.find(':') == std::string_view::npos) {
    choice.all = stream(text);
    return choice;
  }
  for (const std::string_view part : split(text, ',')) {
    const std::size_t colon = part.find(':');
    const auto rank = whole_number(part.substr(0, colon));
    if (colon == std::string_view::npos || !rank || *rank < 0) refuse(option, text, valid);
    choice.each[*rank] = stream(part.substr(colon + 1));
  }
  return choice;
}

std::vector<int> parse_rank_list(std::string_view option, std::string_view text) {
  std::vector<int> ranks;
  for (const std::string_view part : split(text, ',')) {
    const auto rank = whole_number(part);
    if (!rank || *rank < 0) refuse(option, text, "Give local ranks, such as 0,2.");
    ranks.push_back(*rank);
  }
  return ranks;
}

std::vector<int> parse_signals(std::string_view text) {
  std::vector<int> signals;
  for (std::string_view name : split(text, ',')) {
    if (name.starts_with("SIG")) name.remove_prefix(3);
    int number = 0;
    for (int candidate = 1; candidate < 32; ++candidate) {
      const char* known = sigabbrev_np(candidate);
      if (known != nullptr && name == known) number = candidate;
    }
    if (number == 0) refuse("signals-to-handle", text, "Give names, such as SIGHUP,SIGUSR2.");
    for (const int reserved : {SIGKILL, SIGSTOP, SIGCHLD, SIGPIPE}) {
      if (number == reserved) {
        refuse("signals-to-handle", text,
               "SIG" + std::string(name) + " cannot be forwarded; leave it out.");
      }
    }
    signals.push_back(number);
  }
  return signals;
}

void parse_endpoint(std::string_view text, int default_port, LaunchOptions& options) {
  std::string_view host = text, port;
  if (text.starts_with('[')) {
    const std::size_t end = text.find(']');
    host = text.substr(1, end == std::string_view::npos ? end : end - 1);
    if (end != std::string_view::npos && end + 1 < text.size()) port = text.substr(end + 2);
  } else if (const std::size_t colon = text.rfind(':'); colon != std::string_view::npos) {
    host = text.substr(0, colon);
    port = text.substr(colon + 1);
    if (port.empty()) host = {};
  }
  const auto number = port.empty() ? std::optional(default_port) : whole_number(port);
  if (host.empty() || !number || *number < 0 || *number > 65535) {
    refuse("rdzv-endpoint", text, "Give HOST:PORT, such as node1:29400.");
  }
  options.endpoint_host = host;
  options.endpoint_port = *number;
}

void parse_rendezvous_settings(std::string_view text, LaunchOptions& options) {
  struct Setting {
    std::string_view name;
    double LaunchOptions::*member;
  };
  constexpr Setting kSettings[] = {{"join_timeout", &LaunchOptions::join_timeout_s},
                                   {"last_call_timeout", &LaunchOptions::last_call_s},
                                   {"heartbeat_timeout", &LaunchOptions::heartbeat_timeout_s},
                                   {"timeout", &LaunchOptions::join_timeout_s}};
  if (text.empty()) return;
  for (const std::string_view part : split(text, ',')) {
    const std::size_t equals = part.find('=');
    const std::string_view name = part.substr(0, equals);
    const std::string_view value =
        equals == std::string_view::npos ? std::string_view() : part.substr(equals + 1);
    const auto* setting = std::find_if(std::begin(kSettings), std::end(kSettings),
                                       [&](const Setting& s) { return s.name == name; });
    if (setting == std::end(kSettings)) {
      throw Error(ErrorKind::kUsage, "--rdzv-conf knows no setting '" + std::string(name) + "'", {},
                  "Valid: join_timeout (or timeout), last_call_timeout, heartbeat_timeout; all in "
                  "seconds.");
    }
    double seconds = 0;
    const auto result = std::from_chars(value.data(), value.data() + value.size(), seconds);
    if (value.empty() || result.ec != std::errc() || result.ptr != value.data() + value.size() ||
        !(seconds >= 0 && seconds <= 1e6)) {
      throw Error(ErrorKind::kUsage, "--rdzv-conf: " + std::string(name) +
                                         " must be a number of seconds, not '" +
                                         std::string(value) + "'");
    }
    options.*setting->member = seconds;
  }
  if (options.heartbeat_timeout_s < 1) {
    throw Error(ErrorKind::kUsage, "--rdzv-conf: heartbeat_timeout must be at least 1 second");
  }
}

std::string find_program(const std::string& name) {
  std::error_code error;
  const auto check = [&](const Path& path) {
    return std::filesystem::is_regular_file(path, error) && ::access(path.c_str(), X_OK) == 0;
  };
  if (name.find('/') != std::string::npos) {
    if (check(name)) return name;
    const bool there = std::filesystem::exists(name, error);
    throw Error(ErrorKind::kUsage,
                "the command '" + name + "' cannot be started: " +
                    (there ? std::filesystem::is_directory(name, error) ? "it is a folder"
                                                                        : "it is not executable"
                           : "there is no such file"),
                {}, there ? "Make it executable with chmod +x, or name its interpreter." : "");
  }
  const char* path = std::getenv("PATH");
  for (const std::string_view folder : split(path == nullptr ? "/usr/bin:/bin" : path, ':')) {
    const Path candidate = Path(folder.empty() ? "." : folder) / name;
    if (check(candidate)) return candidate.string();
  }
  throw Error(ErrorKind::kUsage,
              "the command '" + name + "' is neither a command of tessera nor a program on PATH",
              {},
              std::filesystem::exists(name, error)
                  ? "For the file of that name in this folder, write ./" + name + "."
                  : "");
}

}  // namespace tessera
