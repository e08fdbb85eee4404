#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <limits>

#include "base/error.h"
#include "cli/command.h"
#include "cli/engine_loader.h"
#include "cli/model_options.h"

namespace tessera::cli {
namespace {

constexpr std::int64_t kAnyCount = std::numeric_limits<std::int64_t>::max();
constexpr std::size_t kLongestPrompt = std::size_t{64} << 20;

std::string read_standard_input() {
  std::string text;
  char buffer[1 << 16];
  for (;;) {
    const ssize_t count = ::read(STDIN_FILENO, buffer, sizeof buffer);
    if (count == 0) return text;
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      throw Error(ErrorKind::kIo,
                  std::string("cannot read the standard input: ") + std::strerror(errno));
    }
    text.append(buffer, static_cast<std::size_t>(count));
    if (text.size() > kLongestPrompt) {
      throw Error(ErrorKind::kData, "the prompt on the standard input is longer than 64 MiB");
    }
  }
}

// An editor's or echo's newline at the end is no part of the prompt.
std::string without_final_newline(std::string text) {
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

std::vector<std::int64_t> parse_ids(const std::string& text) {
  std::vector<std::int64_t> ids;
  const char* at = text.data();
  const char* end = at + text.size();
  while (at != end) {
    while (at != end && *at == ' ') ++at;
    std::int64_t id = 0;
    const auto result = std::from_chars(at, end, id);
    if (result.ec != std::errc() || id < 0) break;
    ids.push_back(id);
    at = result.ptr;
    if (at == end) return ids;
    if (*at != ',' || at + 1 == end) break;
    ++at;
  }
  throw Error(ErrorKind::kUsage,
              "--prompt-ids must be token ids such as 1,2,3, not '" + text + "'");
}

void read_prompts(const Arguments& arguments, GenerateRequest& request) {
  for (const std::string& text : arguments.all("prompt")) {
    request.prompts.push_back(text == "-" ? without_final_newline(read_standard_input()) : text);
  }
  const std::unique_ptr<FileSystem> files = make_posix_file_system();
  for (const std::string& path : arguments.all("prompt-file")) {
    request.prompts.push_back(
        without_final_newline(path == "-" ? read_standard_input() : files->read(path)));
  }
  for (const std::string& text : arguments.all("prompt-ids")) {
    request.prompt_ids.push_back(parse_ids(text));
  }
  if (request.prompts.empty() && request.prompt_ids.empty()) {
    throw Error(ErrorKind::kUsage, "no prompt is given", {},
                "Add --prompt TEXT, --prompt-file FILE or --prompt-ids 1,2,3; --prompt '' begins a "
                "new text.");
  }
  if (!request.prompts.empty() && !request.prompt_ids.empty()) {
    throw Error(ErrorKind::kUsage, "prompts are given both as text and as ids", {},
                "Use one kind for all of them.");
  }
}

int generate(const Arguments& arguments) {
  GenerateRequest request;
  request.model = arguments.operands().front();
  if (const auto folder = arguments.maybe("tokenizer")) request.tokenizer = *folder;
  if (arguments.has("max-new-tokens")) {
    request.max_new_tokens = arguments.integer("max-new-tokens", 1, kAnyCount);
  }
  request.temperature = arguments.number("temperature", 0, 1e6);
  request.top_k = arguments.integer("top-k", 0, kAnyCount);
  request.top_p = arguments.number("top-p", 0, 1);
  request.min_p = arguments.number("min-p", 0, 1);
  request.repetition_penalty = arguments.number("repetition-penalty", 1e-3, 1e3);
  request.seed = static_cast<std::uint64_t>(arguments.integer("seed", 0, kAnyCount));
  request.samples = arguments.integer("samples", 1, 100000);
  request.stop = arguments.all("stop");
  request.sliding = arguments.has("sliding");
  request.stream = !arguments.has("no-stream");
  request.ignore_eos = arguments.has("ignore-eos");
  request.no_cache = arguments.has("no-cache");
  request.device = device_option(arguments);
  request.precision = arguments.text("precision");
  request.json = arguments.has("json");
  request.log_level = arguments.log_level();
  read_prompts(arguments, request);
  return load_engine().generate(request);
}

OptionGroup prompt_options() {
  return {
      "Prompt",
      {{.name = "prompt",
        .value = "TEXT",
        .help = "Text to continue; `-` reads the standard input.",
        .letter = 'p',
        .repeatable = true},
       {.name = "prompt-file",
        .value = "FILE",
        .help =
            "Text of a file to continue, without its last newline; `-` reads the standard input.",
        .repeatable = true},
       {.name = "prompt-ids",
        .value = "IDS",
        .help = "Token ids to continue: 1,2,3.",
        .repeatable = true},
       {.name = "tokenizer",
        .value = "DIR",
        .help = "Tokenizer files, where the model has none of its own."}}};
}

OptionGroup length_options() {
  return {
      "Length",
      {{.name = "max-new-tokens",
        .value = "N",
        .help = "Tokens to add at most; left out, as many of them as the context has room for.",
        .preset = "128",
        .letter = 'n'},
       {.name = "stop", .value = "TEXT", .help = "End before this text.", .repeatable = true},
       {.name = "ignore-eos", .help = "Go on after the end-of-text token."},
       {.name = "sliding",
        .help = "Past the model's context, drop the oldest tokens instead of an error."},
       {.name = "samples", .value = "N", .help = "Continuations of each prompt.", .preset = "1"}}};
}

OptionGroup sampling_options() {
  return {"Sampling",
          {{.name = "temperature",
            .value = "T",
            .help = "0: always the likeliest token.",
            .preset = "1",
            .letter = 't'},
           {.name = "top-k",
            .value = "K",
            .help = "Only the K likeliest tokens; 0: all.",
            .preset = "0"},
           {.name = "top-p",
            .value = "P",
            .help = "Only the likeliest tokens that together have this probability.",
            .preset = "1"},
           {.name = "min-p",
            .value = "P",
            .help = "Only tokens with this share of the likeliest one's probability.",
            .preset = "0"},
           {.name = "repetition-penalty",
            .value = "F",
            .help = "Divides the scores of tokens that stand in the text already; 1: off.",
            .preset = "1"},
           {.name = "seed",
            .value = "S",
            .help = "The same seed gives the same text.",
            .preset = "0"}}};
}

}  // namespace

const Command& generate_command() {
  static const Command command{
      .name = "generate",
      .summary = "Continue a text with a model",
      .operands = "MODEL --prompt TEXT",
      .description =
          "MODEL is a run's folder (its best model, else its newest), a checkpoint's folder, a "
          "Hugging Face folder.",
      .groups = {prompt_options(),
                 length_options(),
                 sampling_options(),
                 device_options(),
                 {"Output",
                  {{.name = "json",
                    .help = "One JSON object a continuation: ids, text, finish_reason."},
                   {.name = "no-stream", .help = "Print the text when it is complete."},
                   {.name = "no-cache",
                    .help = "Compute everything again for each token; for comparison."},
                   logging_options().options[0],
                   logging_options().options[1]}}},
      .examples = {{"tessera generate runs/quickstart --prompt 'The '",
                    "A continuation by chance."},
                   {"echo 'The ' | tessera generate runs/quickstart -p - -t 0 -n 32",
                    "The likeliest 32 tokens after a text from a pipe."},
                   {"tessera generate runs/quickstart -p 'The ' --samples 3 --seed 7 --json",
                    "Three of them, the same ones each time, as JSON lines."}},
      .min_operands = 1,
      .max_operands = 1,
      .completes = Operand::kFile,
      .run = generate};
  return command;
}

}  // namespace tessera::cli
