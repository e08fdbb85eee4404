// `tessera prepare`: text to token files. Owns: the command line, progress and result. Not: the
// work (data/prepare.h).
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text_format.h"
#include "cli/command.h"
#include "cli/program.h"
#include "cli/text_options.h"
#include "config/load.h"
#include "data/prepare.h"
#include "tracking/terminal.h"

namespace tessera::cli {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// A line that is rewritten on a terminal, a new one every ten seconds elsewhere.
class ProgressLine {
 public:
  ProgressLine(Terminal& terminal, LogLevel level) : terminal_(terminal), level_(level) {}

  void show(const PrepareProgress& at) {
    if (level_ == LogLevel::kQuiet) return;
    if (at.stage != stage_) {
      stage_ = at.stage;
      start_ = last_ = Clock::now();
      return;
    }
    const bool interactive = terminal_.traits().interactive;
    if (seconds_since(last_) < (interactive ? 0.1 : 10)) return;
    last_ = Clock::now();
    const std::string line = text(at);
    if (interactive) {
      terminal_.set_status(line.substr(0, static_cast<std::size_t>(terminal_.columns() - 1)));
    } else {
      terminal_.print(line);
    }
  }

 private:
  // encoding 45% | 512.0MiB/1.1GiB | 12.3M tokens | 2.1M tok/s | eta 00:00:12
  std::string text(const PrepareProgress& at) const {
    const double seconds = seconds_since(start_);
    const double done = at.total_bytes == 0
                            ? 1
                            : static_cast<double>(at.bytes) / static_cast<double>(at.total_bytes);
    std::string line = std::string(at.stage) + " " + format_fixed(done * 100, 0) + "% | " +
                       format_bytes(at.bytes) + "/" + format_bytes(at.total_bytes);
    if (at.tokens > 0) {
      const auto tokens = static_cast<double>(at.tokens);
      line += " | " + format_short_count(tokens) + " tokens | " +
              format_short_count(tokens / seconds) + " tok/s";
    }
    return line + " | eta " + format_duration(done > 0 ? seconds / done - seconds : -1);
  }

  Terminal& terminal_;
  LogLevel level_;
  std::string stage_;
  Clock::time_point start_, last_;
};

bool is_config(const std::string& operand) {
  return operand.ends_with(".yaml") || operand.ends_with(".yml");
}

// The data group of CONFIG, if the first operand is one, under what the options say.
DataConfig data_config(const Arguments& arguments) {
  const std::vector<std::string>& operands = arguments.operands();
  DataConfig data;
  auto first = operands.begin();
  if (first != operands.end() && is_config(*first)) {
    ConfigSource source;
    source.config = *first++;
    for (; first != operands.end() && first->find('=') != std::string::npos &&
           !std::filesystem::exists(*first);
         ++first) {
      source.overrides.push_back(*first);
    }
    source.shipped_dir = shipped_config_dir();
    data = load_config(source).config.data;
  }
  if (first != operands.end()) data.train.assign(first, operands.end());
  if (arguments.has("validation")) data.validation = arguments.all("validation");
  if (const auto tokenizer = arguments.maybe("tokenizer")) data.tokenizer = *tokenizer;
  if (const auto separator = arguments.maybe("separator")) data.separator = *separator;
  apply_text_options(arguments, data);
  if (arguments.has("special")) data.special_tokens = true;
  if (arguments.has("train-fraction")) {
    data.train_fraction = arguments.number("train-fraction", 0.000001, 0.999999);
  }
  if (arguments.has("truncate")) data.truncate = arguments.number("truncate", 0.000001, 1);
  if (arguments.has("threads")) data.prepare_threads = arguments.integer("threads", 0, 4096);
  data.block_size = 0;  // a token file serves any
  if (data.train.empty()) {
    throw Error(ErrorKind::kUsage, "no text given", {},
                "Name files or folders, or a config whose data.train does (or `builtin`).");
  }
  return data;
}

nlohmann::ordered_json split_json(const TokenDataset& split) {
  return {{"file", split.name()},
          {"tokens", split.size()},
          {"documents", split.documents()},
          {"text_bytes", split.text_bytes()}};
}

void print_json(const PreparedData& data, const std::string& folder, double seconds) {
  const nlohmann::ordered_json json{{"folder", folder},
                                    {"train", split_json(*data.train)},
                                    {"validation", split_json(*data.validation)},
                                    {"tokenizer",
                                     {{"kind", data.tokenizer->kind()},
                                      {"vocab_size", data.tokenizer->vocab_size()},
                                      {"hash", data.tokenizer->hash()}}},
                                    {"reused", data.from_cache},
                                    {"seconds", seconds}};
  std::printf("%s\n", json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
}

std::string split_line(const char* name, const TokenDataset& split) {
  return std::string(name) + format_count(split.size()) + " tokens, " +
         format_count(static_cast<std::int64_t>(split.documents())) +
         (split.documents() == 1 ? " document, " : " documents, ") +
         format_bytes(split.text_bytes()) + " of text  " + split.name() + "\n";
}

void print_summary(const PreparedData& data, const std::string& folder, double seconds) {
  const double tokens = static_cast<double>(data.train->size() + data.validation->size());
  const std::string text =
      split_line("train       ", *data.train) + split_line("validation  ", *data.validation) +
      "tokenizer   " + std::string(data.tokenizer->kind()) + ", " +
      format_count(data.tokenizer->vocab_size()) + " tokens  " +
      (Path(folder) / "tokenizer").string() + "\n" +
      (data.from_cache ? "Nothing changed since it was prepared.\n"
                       : "Prepared in " + format_fixed(seconds, 1) + " s (" +
                             format_short_count(tokens / seconds) + " tok/s).\n") +
      "Train on it with data.train=" + folder + "\n";
  std::fputs(text.c_str(), stdout);
}

std::vector<OptionGroup> option_groups() {
  OptionGroup text{
      "Text",
      {{.name = "validation",
        .value = "FILE",
        .help = "Text for evaluation, in place of a part of the training text.",
        .repeatable = true},
       {.name = "train-fraction",
        .value = "F",
        .help = "Part of the text to train on, from its start; the rest validates [0.95 "
                "without --validation, else all]."},
       {.name = "truncate",
        .value = "F",
        .help = "Part of the text that is kept, from its start [all]."}}};
  for (Option& option : text_options()) text.options.push_back(std::move(option));
  return {std::move(text),
          {"Tokens",
           {{.name = "tokenizer",
             .value = "NAME",
             .help = "byte, char, a tokenizer's folder, or bpe:N, trained on the text [byte]."},
            {.name = "separator",
             .value = "TEXT",
             .help = "Between documents: none, end-of-text (the token), or any text "
                     "[end-of-text]."},
            {.name = "special", .help = "Read special tokens in the text as tokens."}}},
          {"Work",
           {{.name = "out", .value = "DIR", .help = "Folder for the token files."},
            {.name = "threads", .value = "N", .help = "Threads that encode [all processors]."}}},
          {"Output",
           {{.name = "json", .help = "The result as one line of JSON on stdout."},
            logging_options().options[0],
            logging_options().options[1]}}};
}

int prepare(const Arguments& arguments) {
  const auto start = Clock::now();
  const std::string folder = arguments.text("out");
  if (folder.empty()) {
    throw Error(ErrorKind::kUsage, "no folder for the token files given", {}, "Add --out DIR.");
  }
  const DataConfig config = data_config(arguments);
  Terminal terminal;
  Log log(arguments.log_level(), [&](std::string_view line) { terminal.print(line); });
  ProgressLine progress(terminal, log.level());
  const auto files = make_posix_file_system();
  const PreparedData data = prepare_folder(config, folder, *files, log,
                                           [&](const PrepareProgress& at) { progress.show(at); });
  terminal.set_status({});
  if (arguments.has("json")) {
    print_json(data, folder, seconds_since(start));
  } else {
    print_summary(data, folder, seconds_since(start));
  }
  return 0;
}

}  // namespace

const Command& prepare_command() {
  static const Command command{
      .name = "prepare",
      .summary = "Turn text into token files",
      .operands = "[CONFIG [a.b=c …]] FILE…",
      .description =
          "FILE is plain text, JSON lines, TSV or CSV, each also as .gz or .zst; a folder of "
          "these; "
          "a glob; or `builtin`. CONFIG is a YAML file whose data settings hold where no option "
          "says otherwise; files given here replace its data.train.\n\n"
          "DIR gets train.tok, validation.tok and the tokenizer; data.train=DIR trains on them. "
          "What DIR held before is replaced when all of the new is whole, not earlier. "
          "The same command again finds that nothing changed and does nothing. `train` prepares "
          "text by itself; this command is for doing it beforehand, or once for many runs.",
      .groups = option_groups(),
      .environment = {{"TESSERA_CACHE",
                       "Folder of trained tokenizers and file hashes [~/.cache/tessera]."},
                      {"NO_COLOR", "Plain text without colours."}},
      .examples = {{"tessera prepare builtin --tokenizer bpe:512 --out prepared",
                    "the built-in corpus and a tokenizer trained on it"},
                   {"tessera prepare books/ --tokenizer gpt2/ --out prepared",
                    "a folder of texts with GPT-2's tokenizer"},
                   {"tessera prepare web.jsonl.zst --text-field body --train-fraction 0.99 "
                    "--tokenizer bpe:32000 --out prepared",
                    "compressed JSON lines and a new tokenizer"}},
      .min_operands = 1,
      .max_operands = -1,
      .completes = Operand::kFile,
      .run = prepare};
  return command;
}

}  // namespace tessera::cli
