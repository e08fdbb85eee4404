#include <getopt.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "base/registry.h"
#include "cli/command.h"

namespace tessera::cli {
namespace {

constexpr int kHelp = 1000;  // getopt's code of --help; those of options follow
constexpr int kFirstOption = 1001;

std::vector<const Option*> options_of(const Command& command) {
  std::vector<const Option*> options;
  for (const OptionGroup& group : command.groups) {
    for (const Option& option : group.options) options.push_back(&option);
  }
  return options;
}

// The table that getopt_long reads. Every name stands there with dashes and with underscores.
struct LongOptions {
  explicit LongOptions(const std::vector<const Option*>& options) {
    names.reserve(2 * options.size() + 1);
    add("help", no_argument, kHelp);
    for (std::size_t i = 0; i < options.size(); ++i) {
      const int argument = options[i]->value.empty() ? no_argument : required_argument;
      const int code = kFirstOption + static_cast<int>(i);
      std::string name(options[i]->name);
      add(name, argument, code);
      if (name.find('-') == std::string::npos) continue;
      std::replace(name.begin(), name.end(), '-', '_');
      add(name, argument, code);
    }
    table.push_back({nullptr, 0, nullptr, 0});
  }
  void add(const std::string& name, int argument, int code) {
    names.push_back(name);
    table.push_back({names.back().c_str(), argument, nullptr, code});
  }
  std::vector<std::string> names;
  std::vector<::option> table;
};

std::string shell_quoted(const std::string& word) {
  const auto plain = [](unsigned char c) {
    return std::isalnum(c) != 0 || c >= 0x80 || (c != 0 && std::strchr("_-./:=,+@%", c) != nullptr);
  };
  if (!word.empty() && std::all_of(word.begin(), word.end(), plain)) return word;
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? "'\\''" : std::string(1, c);
  return text + "'";
}

}  // namespace

OptionGroup logging_options() {
  return {"Output",
          {{.name = "quiet", .help = "Only warnings and results.", .letter = 'q'},
           {.name = "verbose", .help = "More detail.", .letter = 'v'}}};
}

Arguments::Arguments(const Command& command, std::string path,
                     const std::vector<std::string>& words)
    : command_(command), path_(std::move(path)), words_(words) {
  const std::vector<const Option*> options = options_of(command);
  const LongOptions table(options);
  std::string letters = ":h";  // the colon: a missing value is told from an unknown option
  if (command.first_operand_ends_options) letters.insert(0, "+");
  for (const Option* option : options) {
    if (option->letter == 0) continue;
    letters += option->letter;
    if (!option->value.empty()) letters += ':';
  }
  std::vector<std::string> texts = {path_};
  texts.insert(texts.end(), words.begin(), words.end());
  std::vector<char*> argv;
  for (std::string& text : texts) argv.push_back(text.data());
  argv.push_back(nullptr);

  optind = 0;  // glibc: start afresh
  opterr = 0;
  const int count = static_cast<int>(texts.size());
  for (;;) {
    int row = -1;
    const int code = getopt_long(count, argv.data(), letters.c_str(), table.table.data(), &row);
    if (code == -1) break;
    if (row >= 0 && code >= kHelp) {
      // getopt takes any beginning of a name, and what somebody meant by it is a guess.
      const bool value_apart = optarg != nullptr && optarg == argv[optind - 1];
      const std::string_view word = argv[optind - (value_apart ? 2 : 1)];
      const std::string_view name = table.table[static_cast<std::size_t>(row)].name;
      if (word.substr(2, word.find('=') - 2) != name) {
        throw Error(
            ErrorKind::kUsage,
            path_ + ": unknown option '" + std::string(word.substr(0, word.find('='))) + "'", {},
            "Did you mean '--" + std::string(name) + "'? See `" + path_ + " --help`.");
      }
    }
    if (code == kHelp || code == 'h') {
      help_ = true;
    } else if (code == ':' || code == '?') {
      if (!help_) refuse(code, optopt, argv[optind - 1]);
    } else {
      for (std::size_t i = 0; i < options.size(); ++i) {
        if (options[i]->letter == code || kFirstOption + static_cast<int>(i) == code) {
          store(*options[i], optarg == nullptr ? "" : optarg);
        }
      }
    }
  }
  for (int i = optind; i < count; ++i) operands_.emplace_back(argv[i]);
  if (!help_) check_operands();
}

// What getopt did not take: `letter` is its optopt, `word` where it stopped.
void Arguments::refuse(int code, int letter, std::string_view word) const {
  const std::vector<const Option*> options = options_of(command_);
  const std::string help = "See `" + path_ + " --help`.";
  const std::string_view bare = word.substr(0, word.find('='));
  if (code == ':') {
    std::string value = "a value";
    for (std::size_t i = 0; i < options.size(); ++i) {
      if (options[i]->letter == letter || kFirstOption + static_cast<int>(i) == letter) {
        value = options[i]->value;
      }
    }
    throw Error(ErrorKind::kUsage, path_ + ": option '" + std::string(bare) + "' needs " + value,
                {}, help);
  }
  if (letter >= kHelp) {
    throw Error(ErrorKind::kUsage, path_ + ": option '" + std::string(bare) + "' takes no value",
                {}, help);
  }
  if (letter != 0) {
    throw Error(ErrorKind::kUsage,
                path_ + ": unknown option '-" + std::string(1, static_cast<char>(letter)) + "'", {},
                help);
  }
  std::vector<std::string_view> names = {"help"};
  std::string matches;
  for (const Option* option : options) {
    names.push_back(option->name);
    if (option->name.starts_with(bare.substr(2))) matches += " --" + std::string(option->name);
  }
  if (!matches.empty()) {
    throw Error(ErrorKind::kUsage, path_ + ": option '" + std::string(bare) + "' is ambiguous", {},
                "It may be" + matches + ". " + help);
  }
  const std::string_view guess = nearest(bare.substr(2), names);
  throw Error(ErrorKind::kUsage, path_ + ": unknown option '" + std::string(bare) + "'", {},
              (guess.empty() ? "" : "Did you mean '--" + std::string(guess) + "'? ") + help);
}

void Arguments::store(const Option& option, std::string value) {
  if (!option.choices.empty() && !option.value.empty() &&
      std::find(option.choices.begin(), option.choices.end(), value) == option.choices.end()) {
    std::string list;
    for (const std::string_view choice : option.choices) {
      list += (list.empty() ? "" : ", ") + std::string(choice);
    }
    const std::string_view guess = nearest(value, option.choices);
    throw Error(
        ErrorKind::kUsage,
        "--" + std::string(option.name) + " must be one of " + list + ", not '" + value + "'", {},
        guess.empty() ? "" : "Did you mean '" + std::string(guess) + "'?");
  }
  given_.push_back({option.name, std::move(value)});
}

void Arguments::check_operands() const {
  const std::string help = "Usage: " + path_ + " [options] " + std::string(command_.operands) +
                           "; see `" + path_ + " --help`.";
  const int count = static_cast<int>(operands_.size());
  if (count < command_.min_operands) {
    // "[CONFIG | FILE …]" names choices: it is shown whole.
    const std::string_view first = command_.operands.starts_with('[')
                                       ? std::string_view("an argument")
                                       : command_.operands.substr(0, command_.operands.find(' '));
    throw Error(ErrorKind::kUsage,
                path_ + ": " + (count == 0 ? std::string(first) : "an argument") + " is missing",
                {}, help);
  }
  if (command_.max_operands >= 0 && count > command_.max_operands) {
    throw Error(ErrorKind::kUsage,
                path_ + ": unexpected argument '" +
                    operands_[static_cast<std::size_t>(command_.max_operands)] + "'",
                {}, help);
  }
}

const Option& Arguments::option(std::string_view name) const {
  for (const Option* option : options_of(command_)) {
    if (option->name == name) return *option;
  }
  throw Error(ErrorKind::kInternal, "the command '" + path_ + "' does not declare an option '--" +
                                        std::string(name) + "'");
}

bool Arguments::has(std::string_view name) const { return maybe(name).has_value(); }

std::optional<std::string> Arguments::maybe(std::string_view name) const {
  const Option& wanted = option(name);
  for (auto it = given_.rbegin(); it != given_.rend(); ++it) {
    if (it->name == wanted.name) return it->value;
  }
  return std::nullopt;
}

std::string Arguments::text(std::string_view name) const {
  return maybe(name).value_or(std::string(option(name).preset));
}

std::vector<std::string> Arguments::all(std::string_view name) const {
  const Option& wanted = option(name);
  std::vector<std::string> values;
  for (const Given& given : given_) {
    if (given.name == wanted.name) values.push_back(given.value);
  }
  return values;
}

std::int64_t Arguments::integer(std::string_view name, std::int64_t min, std::int64_t max) const {
  const std::string value = text(name);
  std::int64_t number = 0;
  const char* end = value.data() + value.size();
  const auto result = std::from_chars(value.data(), end, number);
  if (result.ec == std::errc() && result.ptr == end && number >= min && number <= max) {
    return number;
  }
  std::string range = " of at least " + std::to_string(min);
  if (max < std::int64_t{1} << 53) range += " and at most " + std::to_string(max);
  throw Error(ErrorKind::kUsage, "--" + std::string(name) + " must be a whole number" + range +
                                     ", not '" + value + "'");
}

double Arguments::number(std::string_view name, double min, double max) const {
  const std::string value = text(name);
  double result = 0;
  const char* end = value.data() + value.size();
  const auto parsed = std::from_chars(value.data(), end, result);
  if (parsed.ec == std::errc() && parsed.ptr == end && result >= min && result <= max) {
    return result;
  }
  const auto shown = [](double bound) {
    char buffer[32];
    return std::string(buffer, std::to_chars(buffer, buffer + sizeof buffer, bound).ptr);
  };
  std::string range = " of at least " + shown(min);
  if (std::isfinite(max)) range += " and at most " + shown(max);
  throw Error(ErrorKind::kUsage,
              "--" + std::string(name) + " must be a number" + range + ", not '" + value + "'");
}

LogLevel Arguments::log_level() const {
  if (has("quiet")) return LogLevel::kQuiet;
  return has("verbose") ? LogLevel::kVerbose : LogLevel::kNormal;
}

std::string Arguments::command_line() const {
  std::string line = path_;
  for (const std::string& word : words_) line += " " + shell_quoted(word);
  return line;
}

}  // namespace tessera::cli
