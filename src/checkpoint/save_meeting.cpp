#include "checkpoint/save_meeting.h"

#include <chrono>
#include <new>
#include <nlohmann/json.hpp>

#include "base/host_name.h"

namespace tessera {
namespace {

using Json = nlohmann::ordered_json;

std::string dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json to_json(const SaveFailure& failure) {
  return {{"rank", failure.rank},       {"host", failure.host},
          {"time_ns", failure.time_ns}, {"kind", static_cast<int>(failure.kind)},
          {"reason", failure.reason},   {"where", failure.where},
          {"remedy", failure.remedy}};
}

SaveFailure failure_from(const Json& json) {
  return {.rank = json.at("rank").get<int>(),
          .host = json.at("host").get<std::string>(),
          .time_ns = json.at("time_ns").get<std::int64_t>(),
          .kind = static_cast<ErrorKind>(json.at("kind").get<int>()),
          .reason = json.at("reason").get<std::string>(),
          .where = json.at("where").get<std::string>(),
          .remedy = json.at("remedy").get<std::string>()};
}

[[noreturn]] void unreadable(const std::string& what) {
  throw Error(ErrorKind::kComm, "what a rank told about a checkpoint cannot be read: " + what);
}

// {"failure": {…}} or {"bytes": 12}.
std::string outcome_text(const std::optional<SaveFailure>& failure, std::uint64_t bytes) {
  return dump(failure ? Json{{"failure", to_json(*failure)}} : Json{{"bytes", bytes}});
}

struct Outcome {
  std::optional<SaveFailure> failure;
  std::uint64_t bytes = 0;
};

Outcome parse_outcome(const std::string& text) {
  try {
    const Json json = Json::parse(text);
    if (json.contains("failure")) return {failure_from(json.at("failure")), 0};
    return {std::nullopt, json.at("bytes").get<std::uint64_t>()};
  } catch (const Json::exception& error) {
    unreadable(error.what());
  }
}

// A report is an outcome, or a list of files.
std::string report_text(const WriterReport& report) {
  return report.failure ? outcome_text(report.failure, 0) : file_entries_text(report.files);
}

WriterReport parse_report(const std::string& text) {
  if (text.starts_with('[')) return {parse_file_entries(text), std::nullopt};
  return {{}, parse_outcome(text).failure};
}

}  // namespace

SaveMeeting::SaveMeeting(SaveGroup& group, std::int64_t step, std::int64_t count)
    : group_(group), prefix_(std::to_string(count) + "/step_" + std::to_string(step) + "/") {}

std::string SaveMeeting::key(std::string_view what) const { return prefix_ + std::string(what); }

void SaveMeeting::open(const std::optional<SaveFailure>& failure) {
  group_.tell(key("open"), outcome_text(failure, 0));
}

void SaveMeeting::hear_open() {
  const Outcome outcome = parse_outcome(group_.hear(key("open")));
  if (outcome.failure) throw error_of(*outcome.failure);
}

void SaveMeeting::report(const WriterReport& report) {
  group_.tell(key("report/" + std::to_string(group_.rank())), report_text(report));
}

std::vector<WriterReport> SaveMeeting::hear_reports() {
  std::vector<WriterReport> reports;
  for (int rank = 1; rank < group_.writers(); ++rank) {
    const std::string name = key("report/" + std::to_string(rank));
    reports.push_back(parse_report(group_.hear(name)));
    group_.forget(name);  // a list of slices may be long, and a run long as well
  }
  return reports;
}

void SaveMeeting::close(const std::optional<SaveFailure>& failure, std::uint64_t bytes) {
  group_.tell(key("close"), outcome_text(failure, bytes));
}

std::uint64_t SaveMeeting::hear_close() {
  const Outcome outcome = parse_outcome(group_.hear(key("close")));
  if (outcome.failure) throw error_of(*outcome.failure);
  return outcome.bytes;
}

SaveFailure SaveMeeting::failure_of(const std::exception_ptr& error) const {
  SaveFailure failure;
  failure.rank = group_.rank();
  failure.host = host_name();
  failure.time_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(
                        std::chrono::system_clock::now().time_since_epoch())
                        .count();
  try {
    std::rethrow_exception(error);
  } catch (const Error& known) {
    failure.kind = known.kind();
    failure.reason = known.reason();
    failure.where = known.where();
    failure.remedy = known.remedy();
  } catch (const std::bad_alloc&) {
    failure.kind = ErrorKind::kResource;
    failure.reason = "out of memory while a checkpoint was written";
  } catch (const std::exception& other) {
    failure.reason = other.what();
  }
  return failure;
}

Error SaveMeeting::error_of(const SaveFailure& failure) const {
  // What one rank found out about another (kComm) names that one already.
  const bool named = group_.writers() == 1 || failure.kind == ErrorKind::kComm;
  return Error(failure.kind,
               named ? failure.reason
                     : "rank " + std::to_string(failure.rank) + " (host " + failure.host +
                           ") could not save the checkpoint: " + failure.reason,
               failure.where, failure.remedy);
}

std::optional<SaveFailure> first_failure(const std::vector<WriterReport>& reports) {
  const SaveFailure* first = nullptr;
  for (const WriterReport& report : reports) {
    if (report.failure && (first == nullptr || report.failure->time_ns < first->time_ns))
      first = &*report.failure;
  }
  return first == nullptr ? std::nullopt : std::optional(*first);
}

}  // namespace tessera
