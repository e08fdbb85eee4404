#include <algorithm>
#include <cstdio>

#include "base/error.h"
#include "cli/command.h"
#include "cli/program.h"
#include "config/describe.h"
#include "config/load.h"

namespace tessera::cli {
namespace {

void print(const std::string& text) { std::fwrite(text.data(), 1, text.size(), stdout); }

std::vector<Path> search_folders(const Arguments& arguments) {
  std::vector<Path> folders;
  if (const auto folder = arguments.maybe("config-dir")) folders.emplace_back(*folder);
  folders.push_back(shipped_config_dir());
  return folders;
}

int list(const Arguments& arguments) {
  std::vector<ShippedConfig> configs;
  for (const Path& folder : search_folders(arguments)) {
    for (const ShippedConfig& config : list_configs(folder)) configs.push_back(config);
  }
  if (configs.empty()) {
    throw Error(ErrorKind::kIo, "no configs were found beside the program", {},
                "Reinstall it, or give a folder of configs with --config-dir.");
  }
  std::size_t width = 0;
  for (const ShippedConfig& config : configs) width = std::max(width, config.name.size());
  for (const ShippedConfig& config : configs) {
    const std::string gap(width + 2 - config.name.size(), ' ');
    print(arguments.has("names") ? config.name + "\n" : config.name + gap + config.summary + "\n");
  }
  return 0;
}

int show(const Arguments& arguments) {
  const auto files = make_posix_file_system();
  print(files->read(find_config(arguments.operands()[0], search_folders(arguments))));
  return 0;
}

int copy(const Arguments& arguments) {
  const auto files = make_posix_file_system();
  const Path source = find_config(arguments.operands()[0], search_folders(arguments));
  Path target = arguments.operands().size() > 1 ? Path(arguments.operands()[1]) : Path(".");
  if (files->is_directory(target)) target /= source.filename();
  if (files->exists(target) && !arguments.has("force")) {
    throw Error(ErrorKind::kIo, "'" + target.string() + "' exists already", {},
                "Choose another name, or overwrite it with --force.");
  }
  write_file_atomically(*files, target, files->read(source));
  print(target.string() + "\n");
  return 0;
}

int validate(const Arguments& arguments) {
  ConfigSource source;
  source.config = arguments.operands().front();
  source.overrides.assign(arguments.operands().begin() + 1, arguments.operands().end());
  if (const auto folder = arguments.maybe("config-dir")) source.config_dir = *folder;
  source.shipped_dir = shipped_config_dir();
  load_config(source);
  print(source.config + ": valid\n");
  return 0;
}

int schema(const Arguments&) {
  print(config_json_schema());
  return 0;
}

int docs(const Arguments& arguments) {
  const std::string text = config_markdown_reference();
  const auto page = arguments.maybe("check");
  if (!page) {
    print(text);
    return 0;
  }
  if (make_posix_file_system()->read(*page) != text) {
    throw Error(ErrorKind::kConfig, "'" + *page + "' is not what the table of settings gives", {},
                "Write it again: tessera config docs > " + *page);
  }
  return 0;
}

Option config_dir_option() {
  return {.name = "config-dir", .value = "DIR", .help = "Look for configs and groups here first."};
}

std::vector<Command> subcommands() {
  const OptionGroup where = {"Options", {config_dir_option()}};
  return {
      {.name = "ls",
       .summary = "List the configs that come with the program",
       .groups = {{"Options", {config_dir_option(), {.name = "names", .help = "Names only."}}}},
       .examples = {{"tessera config ls", "Names and what each is for."}},
       .run = list},
      {.name = "cat",
       .summary = "Print a config as it stands in its file",
       .operands = "CONFIG",
       .groups = {where},
       .examples = {{"tessera config cat quickstart", "The quick start's settings."}},
       .min_operands = 1,
       .max_operands = 1,
       .completes = Operand::kConfig,
       .run = show},
      {.name = "cp",
       .summary = "Copy a config, to start one of your own",
       .operands = "CONFIG [FILE]",
       .description = "Relative paths in the copy are relative to its new folder.",
       .groups = {{"Options",
                   {config_dir_option(),
                    {.name = "force", .help = "Overwrite FILE.", .letter = 'f'}}}},
       .examples = {{"tessera config cp quickstart my.yaml", "A copy in the working folder."}},
       .min_operands = 1,
       .max_operands = 2,
       .completes = Operand::kConfig,
       .run = copy},
      {.name = "validate",
       .summary = "Check a config and report everything that is wrong",
       .operands = "CONFIG [a.b=c …]",
       .description = "Ends with code 2 where something is wrong. Data is not looked at.",
       .groups = {where},
       .examples = {{"tessera config validate quickstart optim.lr=1e-3",
                     "A config with an override."}},
       .min_operands = 1,
       .max_operands = -1,
       .completes = Operand::kConfig,
       .run = validate},
      {.name = "schema",
       .summary = "Print the JSON schema of configs, for editors and tools",
       .examples = {{"tessera config schema > tessera.schema.json",
                     "For an editor's YAML support."}},
       .run = schema},
      {.name = "docs",
       .summary = "Print the reference page of all settings",
       .groups = {{"Options",
                   {{.name = "check",
                     .value = "FILE",
                     .help = "Instead, end with code 2 where FILE is not that page."}}}},
       .examples = {{"tessera config docs > config.md", "The page as Markdown."}},
       .run = docs},
  };
}

}  // namespace

const Command& config_command() {
  static const Command command{.name = "config",
                               .summary = "Shipped configs, checks, schema and reference",
                               .subcommands = subcommands()};
  return command;
}

}  // namespace tessera::cli
