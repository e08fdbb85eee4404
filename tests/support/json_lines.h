// JSON lines as the program prints them with --json and writes them to metrics.jsonl.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::testing {

using Json = nlohmann::json;

// One value for each line. Throws std::runtime_error naming the first line that is not JSON (NaN is
// not JSON), so a test that calls it also proves that nothing else is on stdout. A last line
// without its newline is such an error.
std::vector<Json> parse_json_lines(std::string_view text);

// Those with "event" == event, in order.
std::vector<Json> events(const std::vector<Json>& lines, std::string_view event);

// The last of them; throws std::runtime_error naming the event where there is none.
Json last_event(const std::vector<Json>& lines, std::string_view event);

}  // namespace tessera::testing
