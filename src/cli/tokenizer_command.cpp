// `tessera tokenizer`: encode, decode, train and show. Owns: the command line and its output. Not:
// tokenizers.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>
#include <span>

#include "base/error.h"
#include "base/machine.h"
#include "base/new_folder.h"
#include "base/text_format.h"
#include "cli/command.h"
#include "cli/text_options.h"
#include "data/builtin_corpus.h"
#include "data/text_source.h"
#include "data/tokenizer_sinks.h"
#include "data/utf8_check.h"
#include "tokenizer/bpe_trainer.h"
#include "tokenizer/byte_tokenizer.h"
#include "tokenizer/char_tokenizer.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/utf8_stream.h"

namespace tessera::cli {
namespace {

using Json = nlohmann::ordered_json;

void print(std::string_view text) { std::fwrite(text.data(), 1, text.size(), stdout); }

std::string read_standard_input() {
  std::string text;
  char buffer[1 << 16];
  for (;;) {
    const ssize_t count = ::read(STDIN_FILENO, buffer, sizeof buffer);
    if (count == 0) return text;
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      throw Error(ErrorKind::kData,
                  std::string("cannot read the standard input: ") + std::strerror(errno));
    }
    text.append(buffer, static_cast<std::size_t>(count));
  }
}

// A text for a command; `-` is the standard input. What cannot be read is bad data here, not a
// broken model.
class InputText {
 public:
  explicit InputText(const std::string& name) : name_(name == "-" ? "the standard input" : name) {
    if (name == "-") {
      held_ = read_standard_input();
      return;
    }
    try {
      std::error_code ignored;
      if (std::filesystem::is_regular_file(name, ignored)) {
        mapped_.emplace(name);
      } else {
        held_ = make_posix_file_system()->read(name);  // a pipe or a device, or the reason why not
      }
    } catch (const Error& error) {
      throw Error(ErrorKind::kData, error.reason(), error.where(), error.remedy());
    }
  }
  std::string_view text() const { return mapped_ ? mapped_->text() : std::string_view(held_); }
  const std::string& name() const { return name_; }

 private:
  std::string name_, held_;
  std::optional<MappedFile> mapped_;
};

int thread_count(const Arguments& arguments) {
  const auto threads = static_cast<int>(arguments.integer("threads", 0, 1024));
  return threads > 0 ? threads : machine_facts().usable_processors();
}

// The ids with commas or blanks between them.
void append_ids(std::span<const TokenId> ids, std::string_view separator, std::string& line) {
  char digits[16];
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (i > 0) line += separator;
    const auto result = std::to_chars(digits, digits + sizeof digits, ids[i]);
    line.append(digits, result.ptr);
  }
}

class Encoder {
 public:
  explicit Encoder(const Arguments& arguments)
      : tokenizer_(load_tokenizer(arguments.operands().front())),
        special_(arguments.has("special") ? SpecialTokens::kParse : SpecialTokens::kAsText),
        threads_(thread_count(arguments)),
        json_(arguments.has("json")) {}

  void encode(std::string_view text) {
    const auto start = std::chrono::steady_clock::now();
    const std::vector<TokenId> ids = tokenizer_->encode(text, special_, threads_);
    seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    bytes_ += text.size();
    tokens_ += ids.size();
    std::string line;
    line.reserve(ids.size() * 6 + 16);
    if (json_) line += "{\"ids\":[";
    append_ids(ids, json_ ? "," : " ", line);
    line += json_ ? "]}\n" : "\n";
    print(line);
  }

  // One "text" a line; blank lines only at the end.
  void encode_lines(const InputText& input) {
    std::string_view rest = input.text();
    while (rest.ends_with('\n') || rest.ends_with('\r')) rest.remove_suffix(1);
    for (std::size_t number = 1; !rest.empty(); ++number) {
      const std::size_t end = std::min(rest.find('\n'), rest.size());
      encode_line(rest.substr(0, end), input.name() + ":" + std::to_string(number));
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
  }

  void print_timing() const {
    const double megabytes_per_second =
        seconds_ > 0 ? static_cast<double>(bytes_) / seconds_ / 1e6 : 0;
    std::fprintf(stderr, "encoded %zu bytes to %zu tokens in %.6f s (%.1f MB/s)\n", bytes_, tokens_,
                 seconds_, megabytes_per_second);
  }

 private:
  void encode_line(std::string_view line, const std::string& where) {
    const Json json = Json::parse(line, nullptr, false);
    if (json.is_discarded()) {
      throw Error(ErrorKind::kData, "the line is not JSON", where, "Give one JSON object a line.");
    }
    if (!json.is_object() || !json.contains("text") || !json["text"].is_string()) {
      throw Error(ErrorKind::kData, "the line has no string \"text\"", where,
                  "Give lines such as {\"text\": \"…\"}.");
    }
    try {
      encode(json["text"].get_ref<const std::string&>());
    } catch (const Error& error) {
      throw Error(error.kind(), error.reason(), where + ": " + error.where(), error.remedy());
    }
  }

  std::unique_ptr<Tokenizer> tokenizer_;
  SpecialTokens special_;
  int threads_;
  bool json_;
  double seconds_ = 0;
  std::size_t bytes_ = 0, tokens_ = 0;
};

int encode(const Arguments& arguments) {
  if (arguments.has("text") + arguments.has("file") + arguments.has("jsonl") > 1) {
    throw Error(ErrorKind::kUsage, "--text, --file and --jsonl exclude each other", {},
                "Give one.");
  }
  Encoder encoder(arguments);
  if (const auto text = arguments.maybe("text")) {
    encoder.encode(*text);
  } else if (const auto lines = arguments.maybe("jsonl")) {
    encoder.encode_lines(InputText(*lines));
  } else {
    const InputText input(arguments.maybe("file").value_or("-"));
    encoder.encode(input.text());
  }
  if (arguments.has("timing")) encoder.print_timing();
  return 0;
}

// Numbers with commas, blanks or newlines between them, in brackets or not. A comma has a number on
// both sides.
std::vector<TokenId> parse_ids(std::string_view text, const std::string& where) {
  std::vector<TokenId> ids;
  const auto fail = [&](const std::string& why) {
    throw Error(where == "--ids" ? ErrorKind::kUsage : ErrorKind::kData, why, where,
                "Give ids such as 1,2,3.");
  };
  const char* at = text.data();
  const char* const end = at + text.size();
  bool number_before = false, comma_before = false;
  while (at < end) {
    if (*at == ',') {
      if (!number_before)
        fail("an id is missing before the comma behind " + std::to_string(ids.size()) + " ids");
      number_before = false;
      comma_before = true;
      ++at;
      continue;
    }
    if (std::strchr(" \t\r\n[]", *at) != nullptr && *at != '\0') {
      ++at;
      continue;
    }
    TokenId id = 0;
    const auto [behind, failure] = std::from_chars(at, end, id);
    const bool separated = behind == end || std::strchr(" ,\t\r\n]", *behind) != nullptr;
    if (failure != std::errc() || !separated) {
      const char* const word_end =
          std::find_if(at, end, [](char c) { return c == ',' || c == ' ' || c == '\n'; });
      fail("'" + std::string(at, std::min(word_end, at + 40)) + "' is no token id");
    }
    ids.push_back(id);
    number_before = true;
    comma_before = false;
    at = behind;
  }
  if (comma_before) fail("an id is missing after the last comma");
  return ids;
}

void print_decoded(const Tokenizer& tokenizer, std::span<const TokenId> ids, bool json) {
  const std::string text = tokenizer.decode(ids);
  if (json) {
    print(Json{{"text", replace_invalid_utf8(text)}}.dump() + "\n");
    return;
  }
  print(text);
  if (isatty(STDOUT_FILENO) == 1 && !text.ends_with('\n')) print("\n");
}

int decode(const Arguments& arguments) {
  const auto tokenizer = load_tokenizer(arguments.operands().front());
  const bool json = arguments.has("json");
  if (const auto ids = arguments.maybe("ids")) {
    print_decoded(*tokenizer, parse_ids(*ids, "--ids"), json);
    return 0;
  }
  const InputText input("-");
  std::string_view rest = input.text();
  if (!rest.starts_with('{')) {
    print_decoded(*tokenizer, parse_ids(rest, input.name()), json);
    return 0;
  }
  // What `encode --json` prints.
  for (std::size_t number = 1; !rest.empty(); ++number) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    const Json line = Json::parse(rest.substr(0, end), nullptr, false);
    const std::string where = input.name() + ":" + std::to_string(number);
    if (!line.is_object() || !line.contains("ids") || !line["ids"].is_array()) {
      throw Error(ErrorKind::kData, "the line has no list \"ids\"", where,
                  "Give lines such as {\"ids\":[1,2]}.");
    }
    print_decoded(*tokenizer, parse_ids(line["ids"].dump(), where), json);
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return 0;
}

// What a tokenizer is trained on: the sources of `prepare`, and the standard input, which is plain
// text.
void read_training_text(const Arguments& arguments, Log& log, DocumentSink& sink) {
  DataConfig settings;
  apply_text_options(arguments, settings);
  DocumentOptions options;
  options.text_field = settings.text_field;
  options.text_column = settings.text_column;
  options.names = kOptionNames;
  options.names.byte_tokenizer = "--kind=byte";
  options.names.instead_of_tokens = "Give the text itself.";
  std::vector<std::string> entries = arguments.operands();
  const bool standard_input = entries.empty() || std::erase(entries, "-") > 0;
  if (standard_input && settings.format != DataFormat::kAuto &&
      settings.format != DataFormat::kText) {
    throw Error(ErrorKind::kUsage, "the standard input is read as plain text", "--format",
                "Store the text in a file, and name that.");
  }
  if (!entries.empty()) {
    const TextSource source =
        entries == std::vector<std::string>{std::string(kBuiltinCorpusName)}
            ? TextSource::builtin(kBuiltinTrainSeed, kBuiltinTrainBytes)
            : TextSource::from_entries(entries, settings.format, log, options.names);
    for (const SourceFile& file : source.files()) {
      if (file.tokens) sink.ids({}, file.path.string());
    }
    source.read(options, sink, {});
  }
  if (!standard_input) return;
  const InputText input("-");
  Utf8Check check(input.name(), false, std::string(options.names.byte_tokenizer));
  check.add(input.text());
  check.finish();
  if (!input.text().empty()) sink.text(input.text(), true);
}

std::unique_ptr<Tokenizer> train_bpe(const Arguments& arguments, Log& log) {
  BpeTrainer trainer(
      {.vocab_size = arguments.integer("vocab-size", 1, std::numeric_limits<std::int64_t>::max()),
       .special_tokens = arguments.all("special"),
       .min_count = arguments.integer("min-count", 1, std::numeric_limits<std::int64_t>::max()),
       .shortfall = arguments.has("exact") ? Shortfall::kError : Shortfall::kSmaller,
       .threads = thread_count(arguments)});
  BpeSink sink(trainer);
  read_training_text(arguments, log, sink);
  return trainer.train();
}

std::unique_ptr<Tokenizer> train_characters(const Arguments& arguments, Log& log) {
  CharSink sink;
  read_training_text(arguments, log, sink);
  return sink.vocabulary.make_tokenizer(EndOfText::kAdded);
}

int train(const Arguments& arguments) {
  const std::string kind = arguments.text("kind");
  const auto out = arguments.maybe("out");
  if (!out)
    throw Error(ErrorKind::kUsage, "no folder for the tokenizer is given", {}, "Add --out DIR.");
  if (kind == "bpe" && !arguments.has("vocab-size")) {
    throw Error(ErrorKind::kUsage, "no vocabulary size is given", {}, "Add --vocab-size N.");
  }
  if (kind != "bpe" && (arguments.has("vocab-size") || arguments.has("special"))) {
    throw Error(ErrorKind::kUsage, "--vocab-size and --special are for --kind bpe", {},
                "Leave them out.");
  }
  const auto start = std::chrono::steady_clock::now();
  Log log(arguments.log_level());
  std::unique_ptr<Tokenizer> tokenizer;
  if (kind == "byte") {
    tokenizer = make_byte_tokenizer(EndOfText::kAdded);
  } else {
    tokenizer = kind == "char" ? train_characters(arguments, log) : train_bpe(arguments, log);
  }
  const auto files = make_posix_file_system();
  const NewFolder folder(*files, *out);
  tokenizer->save(*files, *out);
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const std::int64_t size = tokenizer->vocab_size();
  if (kind == "bpe" &&
      size < arguments.integer("vocab-size", 1, std::numeric_limits<std::int64_t>::max())) {
    log.warning("the vocabulary has " + std::to_string(size) + " tokens, not " +
                arguments.text("vocab-size") + ": no pair of tokens occurs " +
                arguments.text("min-count") + " times any more. Give more text for a larger one.");
  }
  log.info("vocabulary of " + format_count(size) + " tokens in " + *out + " (" +
           format_fixed(seconds, 1) + " s)");
  if (arguments.has("json")) {
    print(Json{{"vocab_size", size},
               {"merges", tokenizer->merges().size()},
               {"hash", tokenizer->hash()},
               {"dir", replace_invalid_utf8(*out)}}
              .dump() +
          "\n");
  }
  return 0;
}

Json describe(const Tokenizer& tokenizer) {
  Json json{{"kind", tokenizer.kind()},
            {"vocab_size", tokenizer.vocab_size()},
            {"end_of_text", nullptr},
            {"special_tokens", Json::array()},
            {"merges", tokenizer.merges().size()},
            {"hash", tokenizer.hash()}};
  if (tokenizer.end_of_text()) json["end_of_text"] = *tokenizer.end_of_text();
  for (const SpecialToken& token : tokenizer.special_tokens()) {
    json["special_tokens"].push_back(
        {{"text", token.text}, {"id", token.id}, {"always_parsed", token.always_parsed}});
  }
  return json;
}

std::string as_json(std::string_view bytes) { return Json(replace_invalid_utf8(bytes)).dump(); }

int show(const Arguments& arguments) {
  const auto tokenizer = load_tokenizer(arguments.operands().front());
  if (arguments.has("json")) {
    print(describe(*tokenizer).dump() + "\n");
    return 0;
  }
  std::string text =
      "kind            " + std::string(tokenizer->kind()) + "\nvocabulary      " +
      format_count(tokenizer->vocab_size()) + " ids\nend of text     " +
      (tokenizer->end_of_text() ? std::to_string(*tokenizer->end_of_text()) : "none") + "\n";
  for (const SpecialToken& token : tokenizer->special_tokens()) {
    text += "special token   " + std::to_string(token.id) + "  " + as_json(token.text) +
            (token.always_parsed ? "  (found in all text)" : "") + "\n";
  }
  const std::span<const TokenMerge> merges = tokenizer->merges();
  if (!merges.empty())
    text += "merges          " + format_count(static_cast<std::int64_t>(merges.size())) + "\n";
  constexpr std::size_t kShown = 5;
  for (std::size_t i = 0; i < merges.size(); ++i) {
    if (i >= kShown && i + kShown < merges.size()) continue;
    text += "merge " + std::to_string(i + 1) +
            std::string(10 - std::min<std::size_t>(9, std::to_string(i + 1).size()), ' ') +
            std::to_string(merges[i].merged) + "  " +
            as_json(tokenizer->token_bytes(merges[i].left)) + " + " +
            as_json(tokenizer->token_bytes(merges[i].right)) + "\n";
  }
  print(text + "hash            " + tokenizer->hash() + "\n");
  return 0;
}

Option threads_option() {
  return {.name = "threads",
          .value = "N",
          .help = "Threads to use; 0: all processors. The result is the same.",
          .preset = "0"};
}

Command encode_command() {
  return {
      .name = "encode",
      .summary = "Turn text into token ids",
      .operands = "DIR",
      .description =
          "Prints the ids of a text on one line. Without --text, --file or --jsonl the text is the "
          "standard input, its last newline included.",
      .groups = {{"Text",
                  {{.name = "text", .value = "TEXT", .help = "The text itself."},
                   {.name = "file",
                    .value = "FILE",
                    .help = "A file's whole text; `-`: the standard input."},
                   {.name = "jsonl",
                    .value = "FILE",
                    .help = "\"text\" of each line of a JSON lines file."},
                   {.name = "special",
                    .help = "Special tokens in the text are those tokens, not text."}}},
                 {"Output",
                  {{.name = "json", .help = "{\"ids\":[…]}, a line for each text."},
                   {.name = "timing",
                    .help = "Print the time of encoding alone on the standard error."},
                   threads_option()}}},
      .examples = {{"tessera tokenizer encode gpt2 --text 'Hello world'", "15496 995"},
                   {"tessera tokenizer encode gpt2 --jsonl texts.jsonl --json",
                    "One line of ids for each text."}},
      .min_operands = 1,
      .max_operands = 1,
      .completes = Operand::kFile,
      .run = encode};
}

Command decode_command() {
  return {
      .name = "decode",
      .summary = "Turn token ids into text",
      .operands = "DIR",
      .description =
          "Prints exactly the bytes that the ids stand for. Without --ids they are read from the "
          "standard input: numbers, or lines as `encode --json` prints them.",
      .groups = {{"Options",
                  {{.name = "ids", .value = "IDS", .help = "Token ids: 1,2,3."},
                   {.name = "json", .help = "{\"text\"}; invalid UTF-8 becomes U+FFFD."}}}},
      .examples = {{"tessera tokenizer decode gpt2 --ids 15496,995", "Hello world"}},
      .min_operands = 1,
      .max_operands = 1,
      .completes = Operand::kFile,
      .run = decode};
}

Command train_subcommand() {
  OptionGroup logging = logging_options();
  return {.name = "train",
          .summary = "Make a tokenizer from text",
          .operands = "[FILE …]",
          .description =
              "Learns a byte-level BPE with GPT-2's split of words, and writes vocab.json, "
              "merges.txt and "
              "tokenizer.json as Hugging Face reads them. <|endoftext|> is the last id and counts "
              "in N. The result "
              "depends on the texts only. If they hold too few repeated pairs for N, the "
              "vocabulary is smaller and a "
              "warning says how large; with --exact that is an error.\n\n"
              "FILE is what `prepare` takes: plain text, JSON lines, TSV or CSV, each also as .gz "
              "or .zst; a folder of these; a glob; or `builtin`. `-`, or no FILE, is plain text "
              "from the standard input.",
          .groups =
              {{"Text", text_options()},
               {"Vocabulary",
                {{.name = "vocab-size",
                  .value = "N",
                  .help = "All ids: 256 bytes, merges, special tokens."},
                 {.name = "special",
                  .value = "TOKEN",
                  .help = "A special token beside <|endoftext|>.",
                  .repeatable = true},
                 {.name = "min-count",
                  .value = "N",
                  .help = "Do not merge pairs that occur less often.",
                  .preset = "2"},
                 {.name = "exact", .help = "An error if the text does not suffice for N."},
                 {.name = "kind",
                  .value = "KIND",
                  .help = "bpe; char: the characters of the text; byte: the 256 bytes.",
                  .preset = "bpe",
                  .choices = {"bpe", "char", "byte"}}}},
               {"Output",
                {{.name = "out", .value = "DIR", .help = "Folder for the files; made if need be."},
                 {.name = "json", .help = "{\"vocab_size\",\"merges\",\"hash\",\"dir\"}."},
                 threads_option()}},
               logging},
          .examples = {{"tessera tokenizer train --vocab-size 8192 --out tok train.txt",
                        "A vocabulary of 8,192."},
                       {"tessera tokenizer train --kind char --out chars train.txt",
                        "A character vocabulary."}},
          .max_operands = -1,
          .completes = Operand::kFile,
          .run = train};
}

Command show_command() {
  return {.name = "show",
          .summary = "Print what a tokenizer is",
          .operands = "DIR",
          .groups = {{"Options", {{.name = "json", .help = "One JSON object."}}}},
          .examples = {{"tessera tokenizer show gpt2",
                        "Kind, size, special tokens, first and last merges, hash."}},
          .min_operands = 1,
          .max_operands = 1,
          .completes = Operand::kFile,
          .run = show};
}

}  // namespace

const Command& tokenizer_command() {
  static const Command command{
      .name = "tokenizer",
      .summary = "Encode, decode, train and show tokenizers",
      .description =
          "DIR is a folder with tokenizer.json, or vocab.json and merges.txt, or encoder.json and "
          "vocab.bpe "
          "(GPT-2's files), or tessera_tokenizer.json.",
      .subcommands = {encode_command(), decode_command(), train_subcommand(), show_command()}};
  return command;
}

}  // namespace tessera::cli
