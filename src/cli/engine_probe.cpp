#include "cli/engine_probe.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace tessera::cli {
namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::json;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

Json to_json(const EngineFacts& facts) {
  return {{"torch_version", facts.torch_version},
          {"torch_library", facts.torch_library},
          {"blas", facts.blas},
          {"cpu_capability", facts.cpu_capability},
          {"default_precision", facts.default_precision},
          {"precision_reason", facts.precision_reason},
          {"threads", facts.threads},
          {"devices", facts.devices},
          {"gemm_gflops_f32", facts.gemm_gflops_f32},
          {"gemm_gflops_bf16", facts.gemm_gflops_bf16}};
}

EngineFacts from_json(const Json& json) {
  EngineFacts facts;
  json.at("torch_version").get_to(facts.torch_version);
  json.at("torch_library").get_to(facts.torch_library);
  json.at("blas").get_to(facts.blas);
  json.at("cpu_capability").get_to(facts.cpu_capability);
  json.at("default_precision").get_to(facts.default_precision);
  json.at("precision_reason").get_to(facts.precision_reason);
  json.at("threads").get_to(facts.threads);
  json.at("devices").get_to(facts.devices);
  json.at("gemm_gflops_f32").get_to(facts.gemm_gflops_f32);
  json.at("gemm_gflops_bf16").get_to(facts.gemm_gflops_bf16);
  return facts;
}

// In the child: what is sent is {"facts", "load_seconds"} or {"failure"}.
Json ask(const std::function<const EngineApi&()>& load, bool measure) {
  const Clock::time_point start = Clock::now();
  try {
    const EngineApi& engine = load();
    const double loaded = seconds_since(start);
    return {{"facts", to_json(engine.facts(measure))}, {"load_seconds", loaded}};
  } catch (const Error& error) {
    // The remedy of a failed load is to call doctor: the caller knows better.
    return {{"failure", error.reason()}};
  } catch (const std::exception& error) {
    return {{"failure", error.what()}};
  }
}

void send_all(int descriptor, const std::string& text) {
  std::size_t sent = 0;
  while (sent < text.size()) {
    const ssize_t count = write(descriptor, text.data() + sent, text.size() - sent);
    if (count <= 0) return;
    sent += static_cast<std::size_t>(count);
  }
}

// Everything until the writer is gone; empty when the time is over before.
std::optional<std::string> receive_all(int descriptor, Clock::time_point deadline) {
  std::string text;
  std::array<char, 4096> buffer{};
  while (true) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
    pollfd polled{descriptor, POLLIN, 0};
    if (left.count() <= 0 || poll(&polled, 1, static_cast<int>(left.count())) == 0)
      return std::nullopt;
    const ssize_t count = read(descriptor, buffer.data(), buffer.size());
    if (count == 0) return text;
    if (count > 0) text.append(buffer.data(), static_cast<std::size_t>(count));
  }
}

// The child's stderr is ours: what the dynamic linker or torch says there stays visible with -v of
// the caller's making.
[[noreturn]] void be_child(int descriptor, const std::function<const EngineApi&()>& load,
                           bool measure) {
  send_all(descriptor, ask(load, measure).dump(-1, ' ', false, Json::error_handler_t::replace));
  _exit(0);  // destructors of a half-loaded library are not to be trusted
}

EngineProbe judge(const std::optional<std::string>& answer, int status,
                  std::chrono::seconds time_limit) {
  EngineProbe probe;
  if (!answer) {
    probe.failure = "it did not answer within " + std::to_string(time_limit.count()) + " s";
  } else if (WIFSIGNALED(status)) {
    probe.failure = std::string("it crashed while loading: ") + strsignal(WTERMSIG(status)) +
                    (WTERMSIG(status) == SIGILL ? " (built for another processor?)" : "");
  } else if (const Json json = Json::parse(*answer, nullptr, false); json.is_discarded()) {
    probe.failure =
        "it ended the process while loading, with exit code " + std::to_string(WEXITSTATUS(status));
  } else if (json.contains("failure")) {
    probe.failure = json["failure"].get<std::string>();
  } else {
    probe.facts = from_json(json.at("facts"));
    probe.load_seconds = json.at("load_seconds").get<double>();
  }
  return probe;
}

}  // namespace

EngineProbe probe_engine(const std::function<const EngineApi&()>& load, bool measure,
                         std::chrono::seconds time_limit) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0)
    throw Error(ErrorKind::kResource,
                std::string("cannot examine the engine: pipe: ") + std::strerror(errno));
  const pid_t child = fork();
  if (child < 0) {
    const std::string why = std::strerror(errno);
    close(ends[0]);
    close(ends[1]);
    throw Error(ErrorKind::kResource, "cannot examine the engine: fork: " + why, {},
                "Look whether memory or the number of processes is exhausted.");
  }
  if (child == 0) {
    close(ends[0]);
    be_child(ends[1], load, measure);
  }
  close(ends[1]);
  const auto answer = receive_all(ends[0], Clock::now() + time_limit);
  close(ends[0]);
  if (!answer) kill(child, SIGKILL);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return judge(answer, status, time_limit);
}

}  // namespace tessera::cli
