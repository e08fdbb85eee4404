// The table of settings for readers: a JSON schema for editors and tools, and the reference page.
#pragma once

#include <string>

namespace tessera {

std::string config_json_schema();         // JSON Schema draft 2020-12, indented
std::string config_markdown_reference();  // docs/config.md, whole

}  // namespace tessera
