// What a subcommand declares about itself. Owns: the tables that parser, help and shell completion
// read. Not: the commands (NAME_command.cpp) or their list (registry.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"

namespace tessera::cli {

class Arguments;

// `--name VALUE`, or a flag where `value` is empty.
struct Option {
  std::string_view name;         // with dashes: "max-new-tokens"; underscores are understood, too
  std::string_view value = {};   // "N", "FILE", "TEXT"
  std::string_view help = {};    // a sentence, with the unit
  std::string_view preset = {};  // the default as text, for the help and for Arguments
  char letter = 0;               // 'q' for -q
  bool repeatable = false;       // else the last one counts
  std::vector<std::string_view> choices = {};  // the only values allowed, if any
};

struct OptionGroup {
  std::string_view title;
  std::vector<Option> options;
};

struct Example {
  std::string_view command;  // works as written
  std::string_view does;
};

struct EnvironmentVariable {
  std::string_view name, help;
};

// What shell completion offers for operands.
enum class Operand { kNone, kFile, kConfig, kCommand };

struct Command {
  std::string_view name;
  std::string_view summary;           // one line, no final stop
  std::string_view operands = {};     // as in the usage line: "CONFIG [a.b=c …]"
  std::string_view description = {};  // paragraphs; wrapped by the help
  std::vector<OptionGroup> groups = {};
  std::vector<EnvironmentVariable> environment = {};
  std::vector<Example> examples = {};
  int min_operands = 0;
  int max_operands = 0;  // -1: any number
  Operand completes = Operand::kNone;
  bool first_operand_ends_options = false;  // what follows it is another program's
  int (*run)(const Arguments&) = nullptr;   // nullptr: only subcommands
  std::vector<Command> subcommands = {};
};

// -q and -v, for commands that report progress. Every command has -h and --help.
OptionGroup logging_options();

// The parsed command line of one command. Throws Error{kUsage} where a value does not fit.
class Arguments {
 public:
  // `words` are those after the command's name. Throws Error{kUsage} naming the nearest option.
  // `path` is how the user called it ("tessera config ls").
  Arguments(const Command& command, std::string path, const std::vector<std::string>& words);

  bool has(std::string_view option) const;          // given on the command line
  std::string text(std::string_view option) const;  // the last one given, else the default
  std::optional<std::string> maybe(std::string_view option) const;  // only when given
  std::vector<std::string> all(std::string_view option) const;      // every one, in order
  std::int64_t integer(std::string_view option, std::int64_t min, std::int64_t max) const;
  double number(std::string_view option, double min, double max) const;
  LogLevel log_level() const;  // of a command with logging_options()
  bool wants_help() const { return help_; }

  const std::vector<std::string>& operands() const { return operands_; }
  const Command& command() const { return command_; }
  const std::string& path() const { return path_; }
  // As the user typed it, quoted for a shell.
  std::string command_line() const;

 private:
  struct Given {
    std::string_view name;
    std::string value;
  };
  const Option& option(std::string_view name) const;  // Error{kInternal}: not declared
  void store(const Option& option, std::string value);
  void check_operands() const;
  [[noreturn]] void refuse(int code, int letter, std::string_view word) const;

  const Command& command_;
  std::string path_;
  std::vector<std::string> words_;
  std::vector<Given> given_;
  std::vector<std::string> operands_;
  bool help_ = false;
};

}  // namespace tessera::cli
