// The one exception type of Tessera. Owns: kinds, places, the layout of a message, and the exit
// code of each kind.
#pragma once

#include <exception>
#include <string>
#include <string_view>

namespace tessera {

// What went wrong, by what a caller or a script can do about it.
enum class ErrorKind {
  kUsage,     // wrong command line
  kConfig,    // wrong configuration value
  kData,      // input text, tokens or labels that cannot be used
  kIo,        // a file operation failed
  kCorrupt,   // a file is there but its content is not what was written
  kComm,      // ranks could not talk to each other
  kNumeric,   // a value that is not finite
  kResource,  // out of memory or another limit of the machine
  kInternal,  // a broken invariant of Tessera itself
};

std::string_view to_string(ErrorKind kind);

// What a process that fails so exits with (docs/cli.md); only cli/ exits.
int exit_code(ErrorKind kind);

// Message layout: "what failed: why (where). What to do."
// `where` may be empty: file:line:column of a config, path+offset of a file, rank+collective.
class Error : public std::exception {
 public:
  Error(ErrorKind kind, std::string what_failed_and_why, std::string where = {},
        std::string what_to_do = {});

  ErrorKind kind() const noexcept { return kind_; }
  const std::string& reason() const noexcept { return reason_; }
  const std::string& where() const noexcept { return where_; }
  const std::string& remedy() const noexcept { return remedy_; }
  const char* what() const noexcept override { return message_.c_str(); }

 private:
  ErrorKind kind_;
  std::string reason_, where_, remedy_, message_;
};

}  // namespace tessera
