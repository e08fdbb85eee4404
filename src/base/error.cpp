#include "base/error.h"

#include <utility>

namespace tessera {

std::string_view to_string(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kUsage: return "usage";
    case ErrorKind::kConfig: return "config";
    case ErrorKind::kData: return "data";
    case ErrorKind::kIo: return "io";
    case ErrorKind::kCorrupt: return "corrupt";
    case ErrorKind::kComm: return "comm";
    case ErrorKind::kNumeric: return "numeric";
    case ErrorKind::kResource: return "resource";
    case ErrorKind::kInternal: return "internal";
  }
  return "internal";
}

int exit_code(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kUsage:
    case ErrorKind::kConfig: return 2;
    case ErrorKind::kData: return 3;
    case ErrorKind::kIo:
    case ErrorKind::kCorrupt: return 4;
    case ErrorKind::kComm: return 5;
    case ErrorKind::kNumeric:
    case ErrorKind::kResource: return 6;
    case ErrorKind::kInternal: return 1;
  }
  return 1;
}

Error::Error(ErrorKind kind, std::string what_failed_and_why, std::string where,
             std::string what_to_do)
    : kind_(kind),
      reason_(std::move(what_failed_and_why)),
      where_(std::move(where)),
      remedy_(std::move(what_to_do)) {
  message_ = reason_;
  if (!where_.empty()) message_ += " (" + where_ + ")";
  if (!message_.empty() && message_.back() != '.') message_ += '.';
  if (!remedy_.empty()) message_ += " " + remedy_;
}

}  // namespace tessera
