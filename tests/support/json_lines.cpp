#include "support/json_lines.h"

#include <stdexcept>

namespace tessera::testing {

std::vector<Json> parse_json_lines(std::string_view text) {
  std::vector<Json> result;
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::size_t end = text.find('\n');
    const std::string line(text.substr(0, end));
    const std::string where = "line " + std::to_string(number) + ": '" + line.substr(0, 200) + "'";
    if (end == std::string_view::npos)
      throw std::runtime_error("no newline at the end of " + where);
    if (!Json::accept(line)) throw std::runtime_error("not JSON: " + where);
    result.push_back(Json::parse(line));
    text.remove_prefix(end + 1);
  }
  return result;
}

std::vector<Json> events(const std::vector<Json>& lines, std::string_view event) {
  std::vector<Json> result;
  for (const Json& line : lines)
    if (line.is_object() && line.value("event", "") == event) result.push_back(line);
  return result;
}

Json last_event(const std::vector<Json>& lines, std::string_view event) {
  std::vector<Json> found = events(lines, event);
  if (found.empty()) throw std::runtime_error("no '" + std::string(event) + "' event");
  return found.back();
}

}  // namespace tessera::testing
