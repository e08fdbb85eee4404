#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "launcher/rank_failure.h"

namespace tessera {
namespace {

using Json = nlohmann::json;
constexpr std::streamsize kLongestErrorFile = 1 << 20;

// Messages are other programs' bytes: what is not UTF-8 is replaced, not thrown at.
std::string dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json json_of(const std::vector<RankFailure>& failures) {
  Json list = Json::array();
  for (const RankFailure& f : failures) {
    list.push_back({{"rank", f.rank},
                    {"local_rank", f.local_rank},
                    {"host", f.host},
                    {"process", f.process},
                    {"exit_code", f.exit_code},
                    {"signal", f.signal},
                    {"time", f.time},
                    {"error_file", f.error_file},
                    {"message", f.message}});
  }
  return list;
}

std::vector<RankFailure> failures_of(const Json& list) {
  std::vector<RankFailure> failures;
  for (const Json& item : list) {
    RankFailure f;
    f.rank = item.at("rank");
    f.local_rank = item.at("local_rank");
    f.host = item.at("host");
    f.process = item.at("process");
    f.exit_code = item.at("exit_code");
    f.signal = item.at("signal");
    f.time = item.at("time");
    f.error_file = item.at("error_file");
    f.message = item.at("message");
    failures.push_back(std::move(f));
  }
  return failures;
}

template <class Read>
auto read(const std::string& text, Read from) {
  try {
    return from(Json::parse(text));
  } catch (const Json::exception& error) {
    throw Error(ErrorKind::kComm,
                std::string("the agents of this job do not understand each other: ") + error.what(),
                {}, "All nodes must run the same version of tessera.");
  }
}

double seconds_of(const Json& value) {
  if (value.is_number()) return value.get<double>();
  if (value.is_string()) return std::strtod(value.get<std::string>().c_str(), nullptr);
  return 0;
}

}  // namespace

std::optional<ErrorFileContent> read_error_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  std::string text(static_cast<std::size_t>(kLongestErrorFile), '\0');
  file.read(text.data(), kLongestErrorFile);
  text.resize(static_cast<std::size_t>(file.gcount()));
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("message")) return std::nullopt;
  ErrorFileContent content;
  const Json& message = json["message"];
  if (message.is_string()) {
    content.message = message;
    content.time = seconds_of(json.value("timestamp", Json()));
  } else if (message.is_object()) {
    if (message.contains("message") && message["message"].is_string())
      content.message = message["message"];
    const Json extra = message.value("extraInfo", Json::object());
    if (extra.is_object()) content.time = seconds_of(extra.value("timestamp", Json()));
  }
  if (content.message.empty()) return std::nullopt;
  return content;
}

std::string to_json(const NodeEnd& end) {
  return dump(
      {{"failures", json_of(end.failures)}, {"stop_signal", end.stop_signal}, {"code", end.code}});
}

NodeEnd node_end_from_json(const std::string& text) {
  return read(text, [](const Json& json) {
    NodeEnd end;
    end.failures = failures_of(json.at("failures"));
    end.stop_signal = json.at("stop_signal");
    end.code = json.at("code");
    return end;
  });
}

std::string to_json(const Verdict& verdict) {
  return dump({{"restart", verdict.action == AfterAttempt::kRestart},
               {"exit_code", verdict.exit_code},
               {"delay_s", verdict.delay_s},
               {"remark", verdict.remark},
               {"failures", json_of(verdict.failures)}});
}

Verdict verdict_from_json(const std::string& text) {
  return read(text, [](const Json& json) {
    Verdict verdict;
    verdict.action = json.at("restart").get<bool>() ? AfterAttempt::kRestart : AfterAttempt::kEnd;
    verdict.exit_code = json.at("exit_code");
    verdict.delay_s = json.at("delay_s");
    verdict.remark = json.at("remark");
    verdict.failures = failures_of(json.at("failures"));
    return verdict;
  });
}

}  // namespace tessera
