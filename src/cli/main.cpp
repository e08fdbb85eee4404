// The program: finds the subcommand, runs it, turns errors into exit codes. The only main.
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <new>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/registry.h"
#include "cli/help.h"
#include "cli/program.h"
#include "cli/registry.h"

namespace tessera::cli {
namespace {

void print(const std::string& text) { std::fwrite(text.data(), 1, text.size(), stdout); }

// All commands as the subcommands of the program itself.
Command program() {
  Command root{
      .name = "tessera",
      .summary = "Trains GPT-like models, on one process or many",
      .description =
          "Quick start, without data of your own: tessera train quickstart\n\n"
          "`tessera COMMAND --help` explains a command, `tessera doctor` this machine.",
      .groups = {{"Program", {{.name = "version", .help = "Print the version."}}}},
      .examples = {{"tessera train quickstart",
                    "A small model on the built-in text, in about two minutes."},
                   {"tessera config ls", "The configs that come with the program."},
                   {"tessera generate runs/quickstart --prompt 'The '",
                    "Text from the model of that run."}},
  };
  for (const CommandFunction function : commands()) root.subcommands.push_back(function());
  return root;
}

[[noreturn]] void unknown_command(const Command& parent, const std::string& path,
                                  const std::string& word) {
  std::vector<std::string_view> names;
  std::string list;
  for (const Command& sub : parent.subcommands) {
    names.push_back(sub.name);
    list += (list.empty() ? "" : ", ") + std::string(sub.name);
  }
  const std::string_view guess = nearest(word, names);
  const bool option = word.starts_with("-");
  throw Error(ErrorKind::kUsage,
              path + ": unknown " + (option ? "option" : "command") + " '" + word + "'", {},
              guess.empty() ? "Commands: " + list + ". See `" + path + " --help`."
                            : "Did you mean '" + path + " " + std::string(guess) + "'?");
}

const Command* find_command(const Command& parent, const std::string& name) {
  for (const Command& sub : parent.subcommands) {
    if (sub.name == name) return &sub;
  }
  return nullptr;
}

int run_command(const Command& root, const std::vector<std::string>& words) {
  const Command* command = &root;
  std::string path = "tessera";
  std::size_t used = 0;
  bool help = false;
  while (command->run == nullptr) {
    const std::string word = used < words.size() ? words[used] : "";
    if (word == "-h" || word == "--help" || (word == "help" && used == 0)) {
      help = true;
      ++used;
      continue;
    }
    if (used == words.size()) break;
    if (used == 0 && (word == "--version" || word == "-V")) {
      print("tessera " + std::string(version()) + "\n");
      return 0;
    }
    const Command* sub = find_command(*command, word);
    if (sub == nullptr) unknown_command(*command, path, word);
    command = sub;
    path += " " + word;
    ++used;
  }
  if (help) {
    print(help_text(*command, path));
    return 0;
  }
  if (command->run == nullptr) {
    const std::string text = help_text(*command, path);
    std::fwrite(text.data(), 1, text.size(), stderr);
    throw Error(ErrorKind::kUsage, path + ": no command given", {}, "See `" + path + " --help`.");
  }
  const Arguments arguments(*command, path,
                            {words.begin() + static_cast<std::ptrdiff_t>(used), words.end()});
  if (arguments.wants_help()) {
    print(help_text(*command, path));
    return 0;
  }
  return command->run(arguments);
}

// What was printed must have arrived: a full disk behind `> file` is an error, too.
int flushed(int code) {
  errno = 0;
  const bool failed = std::fflush(stdout) != 0 || std::ferror(stdout) != 0;
  if (!failed || errno == EPIPE || code != 0) return code;
  throw Error(ErrorKind::kIo,
              std::string("cannot write to the standard output: ") +
                  (errno == 0 ? "it is closed, or its disk is full" : std::strerror(errno)));
}

int guarded_main(const std::vector<std::string>& words) {
  try {
    const Command root = program();
    return flushed(run_command(root, words));
  } catch (const Error& error) {
    print_error(error.what());
    const int code = exit_code(error.kind());
    if (error.kind() != ErrorKind::kComm) return code;
    // Threads of a failed collective wait for ranks that are gone: no destructor may join them.
    std::fflush(nullptr);
    _exit(code);
  } catch (const std::bad_alloc&) {
    print_error(
        "out of memory. Use a smaller model, batch or block, or a machine with more memory.");
    return 6;
  } catch (const std::exception& error) {
    print_error(std::string("internal: ") + error.what() +
                ". This is a defect of tessera; please report it with the command.");
    return 1;
  }
}

}  // namespace
}  // namespace tessera::cli

int main(int argc, char** argv) {
  return tessera::cli::guarded_main({argv + (argc > 0 ? 1 : 0), argv + argc});
}
