#include <gtest/gtest.h>

#include <functional>

#include "base/error.h"
#include "cli/command.h"
#include "cli/help.h"
#include "cli/registry.h"

namespace tessera::cli {
namespace {

int do_nothing(const Arguments&) { return 0; }

const Command& sample_command() {
  static const Command command{
      .name = "sample",
      .summary = "For tests",
      .operands = "FILE [MORE]",
      .groups = {{"Options",
                  {{.name = "max-new-tokens",
                    .value = "N",
                    .help = "Tokens.",
                    .preset = "128",
                    .letter = 'n'},
                   {.name = "temperature", .value = "T", .help = "Heat.", .preset = "1"},
                   {.name = "stop", .value = "TEXT", .help = "Stops.", .repeatable = true},
                   {.name = "task",
                    .value = "TASK",
                    .help = "Task.",
                    .preset = "loss",
                    .choices = {"loss", "lambada"}},
                   {.name = "json", .help = "As JSON."},
                   {.name = "json-lines", .help = "As JSON lines."}}},
                 logging_options()},
      .min_operands = 1,
      .max_operands = 2,
      .run = do_nothing};
  return command;
}

Arguments parse(const std::vector<std::string>& words) {
  return Arguments(sample_command(), "tessera sample", words);
}

std::string refusal(const std::vector<std::string>& words) {
  try {
    parse(words);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUsage);
    return error.what();
  }
  return "accepted";
}

TEST(Arguments, ReadsOptionsAnywhereInBothSpellings) {
  const Arguments arguments =
      parse({"a", "--max_new_tokens=3", "--stop", "--x_y", "-v", "b_c", "--stop=2", "--json"});
  EXPECT_EQ(arguments.operands(), (std::vector<std::string>{"a", "b_c"}));
  EXPECT_EQ(arguments.integer("max-new-tokens", 1, 10), 3);
  EXPECT_EQ(arguments.all("stop"), (std::vector<std::string>{"--x_y", "2"}));
  EXPECT_TRUE(arguments.has("json"));
  EXPECT_FALSE(arguments.has("quiet"));
  EXPECT_EQ(arguments.log_level(), LogLevel::kVerbose);
  EXPECT_EQ(arguments.text("task"), "loss");
  EXPECT_EQ(arguments.maybe("task"), std::nullopt);
  EXPECT_EQ(parse({"a", "-n", "5", "-n6"}).integer("max-new-tokens", 1, 10), 6);
  EXPECT_EQ(parse({"a"}).number("temperature", 0, 2), 1.0);
}

TEST(Arguments, TakesEverythingAfterTwoDashesAsItIs) {
  EXPECT_EQ(parse({"--", "--json", "-x"}).operands(), (std::vector<std::string>{"--json", "-x"}));
  EXPECT_EQ(parse({"-"}).operands(), (std::vector<std::string>{"-"}));
}

TEST(Arguments, NamesTheNearestOption) {
  EXPECT_NE(refusal({"a", "--max-new-token-s", "3"}).find("Did you mean '--max-new-tokens'?"),
            std::string::npos);
  EXPECT_NE(refusal({"a", "--zzzzzzzzz"}).find("unknown option '--zzzzzzzzz'. See"),
            std::string::npos);
  EXPECT_NE(refusal({"a", "-x"}).find("unknown option '-x'"), std::string::npos);
  EXPECT_NE(refusal({"a", "--js"}).find("ambiguous"), std::string::npos);
  // A beginning of a name is no name, with its value in the same word or the next.
  for (const std::vector<std::string>& words : {std::vector<std::string>{"a", "--max-new", "3"},
                                                {"--max-new=3", "a"},
                                                {"--max_new", "3"}}) {
    EXPECT_NE(refusal(words).find("unknown option '--max"), std::string::npos) << words[0];
  }
}

TEST(Arguments, RefusesMissingAndSurplusParts) {
  EXPECT_NE(refusal({"a", "--stop"}).find("option '--stop' needs TEXT"), std::string::npos);
  EXPECT_NE(refusal({"a", "-n"}).find("option '-n' needs N"), std::string::npos);
  EXPECT_NE(refusal({"a", "--json=1"}).find("option '--json' takes no value"), std::string::npos);
  EXPECT_NE(refusal({}).find("FILE is missing"), std::string::npos);
  EXPECT_NE(refusal({"a", "b", "c"}).find("unexpected argument 'c'"), std::string::npos);
  EXPECT_NE(refusal({"a", "--task", "lamda"}).find("Did you mean 'lambada'?"), std::string::npos);
}

TEST(Arguments, ChecksNumbers) {
  EXPECT_THROW(parse({"a", "-n", "0"}).integer("max-new-tokens", 1, 10), Error);
  EXPECT_THROW(parse({"a", "-n", "11"}).integer("max-new-tokens", 1, 10), Error);
  EXPECT_THROW(parse({"a", "-n", "1x"}).integer("max-new-tokens", 1, 10), Error);
  EXPECT_THROW(parse({"a", "-n", "99999999999999999999"}).integer("max-new-tokens", 1, 10), Error);
  for (const char* text : {"nan", "-1", "3", "", "1,5", "inf"}) {
    EXPECT_THROW(parse({"a", "--temperature", text}).number("temperature", 0, 2), Error) << text;
  }
}

TEST(Arguments, HelpGoesBeforeComplaints) {
  EXPECT_TRUE(parse({"--help"}).wants_help());
  EXPECT_TRUE(parse({"-h", "--unknown"}).wants_help());
}

TEST(Arguments, QuotesTheCommandLine) {
  EXPECT_EQ(parse({"a.b=c", "it's", "--stop", ""}).command_line(),
            "tessera sample a.b=c 'it'\\''s' --stop ''");
}

// Every command of the program, with its subcommands.
void visit(const Command& command, const std::string& path,
           const std::function<void(const Command&, const std::string&)>& function) {
  function(command, path);
  for (const Command& sub : command.subcommands) {
    visit(sub, path + " " + std::string(sub.name), function);
  }
}

TEST(Help, FitsEightyColumnsAndTellsEverything) {
  for (const CommandFunction entry : commands()) {
    visit(entry(), "tessera " + std::string(entry().name),
          [](const Command& command, const std::string& path) {
            const std::string text = help_text(command, path);
            std::size_t begin = 0;
            while (begin < text.size()) {
              const std::size_t end = text.find('\n', begin);
              ASSERT_NE(end, text.npos) << path;
              std::size_t columns = 0;
              for (std::size_t i = begin; i < end; ++i) {
                columns += (static_cast<unsigned char>(text[i]) & 0xc0) != 0x80 ? 1 : 0;
              }
              EXPECT_LE(columns, 80u) << path << ": " << text.substr(begin, end - begin);
              begin = end + 1;
            }
            for (const OptionGroup& group : command.groups) {
              for (const Option& option : group.options) {
                EXPECT_NE(text.find("--" + std::string(option.name)), text.npos) << path;
                EXPECT_FALSE(option.help.empty()) << path << " --" << option.name;
                EXPECT_EQ(option.name.find('_'), option.name.npos) << option.name;
              }
            }
            EXPECT_FALSE(command.summary.empty() || command.summary.ends_with('.')) << path;
            EXPECT_TRUE(command.run == nullptr || !command.examples.empty())
                << path << " has no example";
            EXPECT_TRUE((command.run == nullptr) == !command.subcommands.empty()) << path;
          });
  }
}

}  // namespace
}  // namespace tessera::cli
