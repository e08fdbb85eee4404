#include "checkpoint/sealed_text.h"

#include "base/error.h"
#include "base/hash.h"

namespace tessera {
namespace {

constexpr std::string_view kBefore = ",\n\"checksum\": \"";
constexpr std::string_view kAfter = "\"\n}\n";
constexpr std::size_t kDigits = 32;

std::string trailer(std::string_view body) {
  return std::string(kBefore) + content_hash(body) + std::string(kAfter);
}

}  // namespace

std::string seal_json(std::string_view json) {
  const std::size_t brace = json.find_last_of('}');
  if (json.empty() || json.front() != '{' || brace == std::string_view::npos) {
    throw Error(ErrorKind::kInternal, "cannot seal a text that is no JSON object");
  }
  std::string body(json.substr(0, brace));
  while (body.back() == '\n' || body.back() == ' ') body.pop_back();
  return body + trailer(body);
}

std::string_view check_seal(std::string_view text, const Path& path) {
  const std::size_t length = kBefore.size() + kDigits + kAfter.size();
  if (text.size() <= length ||
      text.substr(text.size() - length) != trailer(text.substr(0, text.size() - length))) {
    throw Error(ErrorKind::kCorrupt, path.filename().string() + ": its checksum differs",
                path.string());
  }
  return text;
}

}  // namespace tessera
