#include "cli/help.h"

#include <algorithm>

namespace tessera::cli {
namespace {

constexpr std::size_t kColumns = 80;
constexpr std::size_t kIndent = 26;  // of an option's description

// Columns that UTF-8 text takes, for the characters that help texts use.
std::size_t width(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  }));
}

// Words of `text` in lines of kColumns; the first line starts at column `first`, others at
// `indent`. A line that begins with a space is kept as it is.
std::string wrapped(std::string_view text, std::size_t first, std::size_t indent) {
  std::string result;
  std::size_t column = first;
  bool line_start = true;
  while (!text.empty()) {
    if (text.front() == '\n') {
      result += '\n';
      text.remove_prefix(1);
      const bool blank = text.starts_with('\n');
      if (!blank && !text.empty()) result += std::string(indent, ' ');
      column = indent;
      line_start = true;
      if (text.starts_with(' ')) {
        const std::string_view line = text.substr(0, text.find('\n'));
        result += line;
        text.remove_prefix(line.size());
      }
      continue;
    }
    if (text.front() == ' ') {
      text.remove_prefix(1);
      continue;
    }
    const std::string_view word = text.substr(0, text.find_first_of(" \n"));
    if (!line_start && column + 1 + width(word) > kColumns) {
      result += '\n' + std::string(indent, ' ');
      column = indent;
      line_start = true;
    }
    if (!line_start) {
      result += ' ';
      ++column;
    }
    result += word;
    column += width(word);
    line_start = false;
    text.remove_prefix(word.size());
  }
  return result;
}

std::string entry(const std::string& left, std::string_view right) {
  std::string text = "  " + left;
  std::size_t column = width(text);
  if (column + 2 > kIndent) {
    text += '\n';
    column = 0;
  }
  text += std::string(kIndent - column, ' ');
  return text + wrapped(right, kIndent, kIndent) + "\n";
}

std::string option_entry(const Option& option) {
  std::string left = option.letter != 0 ? std::string("-") + option.letter + ", " : "    ";
  left += "--" + std::string(option.name);
  if (!option.value.empty()) left += " " + std::string(option.value);
  std::string right(option.help);
  for (std::size_t i = 0; i < option.choices.size(); ++i) {
    right += (i == 0 ? " One of " : ", ") + std::string(option.choices[i]);
  }
  if (!option.choices.empty()) right += ".";
  if (option.repeatable) right += " May be repeated.";
  if (!option.preset.empty()) right += " [" + std::string(option.preset) + "]";
  return entry(left, right);
}

// A command line, continued in the shell's way before an option where it is too long.
std::string example_command(std::string_view command) {
  std::string text = "  ";
  std::size_t column = 2;
  while (!command.empty()) {
    const std::size_t end = std::min(command.find(" --", 1), command.size());
    const std::string_view part = command.substr(0, end);
    if (column + width(part) + 2 > kColumns && column > 2) {
      text += " \\\n     ";
      column = 5;
    }
    text += part;
    column += width(part);
    command.remove_prefix(end);
  }
  return text + "\n";
}

std::string usage_line(const Command& command, std::string_view path) {
  std::string line = "Usage: " + std::string(path);
  if (command.run == nullptr) return line + " COMMAND …\n";
  if (!command.groups.empty()) line += " [options]";
  if (!command.operands.empty()) line += " " + std::string(command.operands);
  return line + "\n";
}

}  // namespace

std::string help_text(const Command& command, std::string_view path) {
  std::string text = usage_line(command, path) + "\n";
  text += wrapped(std::string(command.summary) + ".", 0, 0) + "\n";
  if (!command.description.empty()) text += "\n" + wrapped(command.description, 0, 0) + "\n";
  if (!command.subcommands.empty()) {
    text += "\nCommands:\n";
    for (const Command& sub : command.subcommands) {
      text += entry(std::string(sub.name), std::string(sub.summary) + ".");
    }
  }
  for (const OptionGroup& group : command.groups) {
    text += "\n" + std::string(group.title) + ":\n";
    for (const Option& option : group.options) text += option_entry(option);
  }
  text += command.groups.empty() ? "\nOptions:\n" : "\nHelp:\n";
  text += entry("-h, --help", "Show this text.");
  if (!command.environment.empty()) {
    text += "\nEnvironment:\n";
    for (const EnvironmentVariable& variable : command.environment) {
      text += entry(std::string(variable.name), variable.help);
    }
  }
  if (!command.examples.empty()) {
    text += "\nExamples:\n";
    for (const Example& example : command.examples) {
      text += example_command(example.command);
      text += "      " + wrapped(example.does, 6, 6) + "\n";
    }
  }
  return text;
}

}  // namespace tessera::cli
