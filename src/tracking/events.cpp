#include "tracking/events.h"

namespace tessera {

std::string_view to_string(EndStatus status) {
  switch (status) {
    case EndStatus::kDone: return "done";
    case EndStatus::kInterrupted: return "interrupted";
    case EndStatus::kFailed: return "failed";
    case EndStatus::kEarlyStopped: return "early_stopped";
  }
  return "failed";
}

std::optional<EndStatus> parse_end_status(std::string_view text) {
  for (const EndStatus status :
       {EndStatus::kDone, EndStatus::kInterrupted, EndStatus::kFailed, EndStatus::kEarlyStopped}) {
    if (text == to_string(status)) return status;
  }
  return std::nullopt;
}

}  // namespace tessera
