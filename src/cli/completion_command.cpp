// Shell completion scripts, generated from the tables of commands and settings.
#include <cstdio>

#include "base/error.h"
#include "cli/command.h"
#include "cli/registry.h"
#include "config/fields.h"

namespace tessera::cli {
namespace {

// A command together with the words that call it, such as "config ls".
struct Entry {
  std::string words;
  const Command* command;
};

std::vector<Entry> entries() {
  std::vector<Entry> result;
  for (const CommandFunction function : commands()) {
    const Command& command = function();
    result.push_back({std::string(command.name), &command});
    for (const Command& sub : command.subcommands) {
      result.push_back({std::string(command.name) + " " + std::string(sub.name), &sub});
    }
  }
  return result;
}

std::vector<const Option*> options_of(const Command& command) {
  std::vector<const Option*> options;
  for (const OptionGroup& group : command.groups) {
    for (const Option& option : group.options) options.push_back(&option);
  }
  return options;
}

std::string names_of(const std::vector<Command>& list) {
  std::string text;
  for (const Command& command : list) text += (text.empty() ? "" : " ") + std::string(command.name);
  return text;
}

std::string top_names() {
  std::string text;
  for (const CommandFunction function : commands()) {
    text += (text.empty() ? "" : " ") + std::string(function().name);
  }
  return text;
}

std::string option_words(const Command& command) {
  std::string text = "--help";
  for (const Option* option : options_of(command)) text += " --" + std::string(option->name);
  return text;
}

std::string setting_words() {
  std::string text;
  for (const Field& field : fields())
    text += (text.empty() ? "" : " ") + std::string(field.key) + "=";
  return text;
}

bool takes_settings(const Command& command) {
  return command.completes == Operand::kConfig && command.max_operands < 0;
}

// For single quotes of a shell.
std::string in_quotes(std::string_view text) {
  std::string result;
  for (const char c : text) result += c == '\'' ? "'\\''" : std::string(1, c);
  return "'" + result + "'";
}

// What completes an option's value: its choices, else files.
std::string bash_values(const Command& command) {
  std::string text;
  for (const Option* option : options_of(command)) {
    if (option->choices.empty()) continue;
    std::string words;
    for (const std::string_view choice : option->choices) {
      words += (words.empty() ? "" : " ") + std::string(choice);
    }
    text += "        --" + std::string(option->name) + ") words='" + words + "' files=no ;;\n";
  }
  return text;
}

std::string bash_case(const Entry& entry) {
  const Command& command = *entry.command;
  std::string text = "    '" + entry.words + "')\n";
  if (!command.subcommands.empty()) {
    return text + "      words='" + names_of(command.subcommands) + " --help' ;;\n";
  }
  text += "      words='" + option_words(command) + "'\n";
  if (command.completes == Operand::kConfig) {
    text += "      [[ $current == -* ]] || words=\"$(tessera config ls --names 2>/dev/null)\"\n";
    text += "      files=1\n";
  }
  if (takes_settings(command)) {
    text +=
        "      [[ $current == -* || $COMP_CWORD -eq first ]] || words='" + setting_words() + "'\n";
  }
  if (command.completes == Operand::kFile) text += "      files=1\n";
  if (command.completes == Operand::kCommand) text += "      words='bash zsh fish --help'\n";
  const std::string values = bash_values(command);
  if (!values.empty()) text += "      case $previous in\n" + values + "      esac\n";
  return text + "      ;;\n";
}

std::string bash_script() {
  std::string groups;
  for (const CommandFunction function : commands()) {
    if (!function().subcommands.empty()) {
      groups += (groups.empty() ? "" : "|") + std::string(function().name);
    }
  }
  std::string text = R"(# bash completion of tessera: source <(tessera completion bash)
_tessera() {
  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]}
  local command=${COMP_WORDS[1]} words= files= first=2
  COMPREPLY=()
  if [[ $COMP_CWORD -eq 1 ]]; then
    words=')" + top_names() +
                     R"( help --help --version'
    COMPREPLY=($(compgen -W "$words" -- "$current"))
    return
  fi
)";
  if (!groups.empty()) {
    text += "  case $command in\n    " + groups +
            ") [[ $COMP_CWORD -gt 2 ]] && command+=\" ${COMP_WORDS[2]}\" && first=3 ;;\n  esac\n";
  }
  text += "  case $command in\n";
  for (const Entry& entry : entries()) text += bash_case(entry);
  text += R"(    *) files=1 ;;
  esac
  COMPREPLY=($(compgen -W "$words" -- "$current"))
  [[ $files == 1 || ( -z $files && $previous == --* ) ]] && COMPREPLY+=($(compgen -f -- "$current"))
  [[ ${COMPREPLY[0]-} == *= ]] && compopt -o nospace
}
complete -o filenames -F _tessera tessera
)";
  return text;
}

// zsh runs the bash script through its own emulation.
std::string zsh_script() {
  return "#compdef tessera\n# zsh completion of tessera: source <(tessera completion zsh)\n"
         "autoload -U +X bashcompinit && bashcompinit\n" +
         bash_script();
}

std::string fish_script() {
  std::string text = "# fish completion of tessera: tessera completion fish | source\n";
  for (const Entry& entry : entries()) {
    const std::size_t space = entry.words.find(' ');
    const bool nested = space != std::string::npos;
    const std::string parent = entry.words.substr(0, space);
    const Command& command = *entry.command;
    const std::string when =
        nested ? "'__fish_seen_subcommand_from " + parent + "'" : "__fish_use_subcommand";
    text += "complete -c tessera -f -n " + when + " -a " + std::string(command.name) + " -d " +
            in_quotes(command.summary) + "\n";
    std::string seen = "'__fish_seen_subcommand_from " + parent;
    if (nested) seen += "; and __fish_seen_subcommand_from " + std::string(command.name);
    seen += "'";
    for (const Option* option : options_of(command)) {
      text += "complete -c tessera -n " + seen + " -l " + std::string(option->name);
      if (option->letter != 0) text += std::string(" -s ") + option->letter;
      if (!option->value.empty()) text += " -r";
      if (!option->choices.empty()) {
        std::string words;
        for (const std::string_view choice : option->choices) words += std::string(choice) + " ";
        text += " -f -a " + in_quotes(words);
      }
      text += " -d " + in_quotes(option->help) + "\n";
    }
    if (command.completes == Operand::kConfig) {
      text += "complete -c tessera -n " + seen + " -a '(tessera config ls --names 2>/dev/null)'\n";
    }
    if (takes_settings(command)) {
      text += "complete -c tessera -n " + seen + " -a " + in_quotes(setting_words()) + "\n";
    }
  }
  return text;
}

int completion(const Arguments& arguments) {
  const std::string& shell = arguments.operands().front();
  std::string script;
  if (shell == "bash") script = bash_script();
  if (shell == "zsh") script = zsh_script();
  if (shell == "fish") script = fish_script();
  if (script.empty()) {
    throw Error(ErrorKind::kUsage, "no completion for the shell '" + shell + "'", {},
                "There is one for bash, zsh and fish.");
  }
  std::fwrite(script.data(), 1, script.size(), stdout);
  return 0;
}

}  // namespace

const Command& completion_command() {
  static const Command command{
      .name = "completion",
      .summary = "Print a completion script for bash, zsh or fish",
      .operands = "bash|zsh|fish",
      .examples = {{"source <(tessera completion bash)", "Completion in this shell."},
                   {"tessera completion fish | source", "The same for fish."}},
      .min_operands = 1,
      .max_operands = 1,
      .completes = Operand::kCommand,
      .run = completion};
  return command;
}

}  // namespace tessera::cli
