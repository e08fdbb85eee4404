#include <limits>

#include "base/error.h"
#include "cli/command.h"
#include "cli/engine_loader.h"
#include "cli/model_options.h"
#include "cli/text_options.h"
#include "data/prepared_folder.h"

namespace tessera::cli {
namespace {

constexpr std::int64_t kAnyCount = std::numeric_limits<std::int64_t>::max();

// Of a folder that `prepare` made, its validation part.
Path evaluation_file(const std::string& path) {
  if (!is_prepared_folder(path)) return path;
  const PreparedFolder folder(path);
  check_prepared_folder(folder, *make_posix_file_system());
  return folder.validation;
}

int evaluate(const Arguments& arguments) {
  EvaluateRequest request;
  request.model = arguments.operands().front();
  for (const std::string& path : arguments.all("data"))
    request.data.push_back(evaluation_file(path));
  if (request.data.empty()) {
    throw Error(ErrorKind::kUsage, "no text to evaluate on is given", {}, "Add --data FILE.");
  }
  if (const auto folder = arguments.maybe("tokenizer")) request.tokenizer = *folder;
  DataConfig text;
  apply_text_options(arguments, text);
  request.format = text.format;
  request.text_field = text.text_field;
  request.text_column = text.text_column;
  request.stride = arguments.integer("stride", 0, kAnyCount);
  request.block_size = arguments.integer("block-size", 0, kAnyCount);
  request.batch_size = arguments.integer("batch-size", 1, kAnyCount);
  request.task = arguments.text("task");
  request.word_perplexity = arguments.has("word-perplexity");
  request.device = device_option(arguments);
  request.precision = arguments.text("precision");
  request.json = arguments.has("json");
  request.log_level = arguments.log_level();
  return load_engine().evaluate(request);
}

}  // namespace

const Command& evaluate_command() {
  static const Command command{
      .name = "evaluate",
      .summary = "Loss, perplexity and accuracy of a model on text",
      .operands = "MODEL --data FILE",
      .description =
          "MODEL is a run's folder (its best model, else its newest), a checkpoint's folder, a "
          "Hugging Face folder. The text is encoded whole, without special tokens; "
          "every token but the first is predicted exactly once.",
      .groups =
          {{"Data",
            {{.name = "data",
              .value = "FILE",
              .help = "Text to evaluate on; of a folder that `prepare` made, its validation part.",
              .repeatable = true},
             {.name = "tokenizer",
              .value = "DIR",
              .help = "Tokenizer files, where the model has none of its own."},
             text_options()[0],
             text_options()[1],
             text_options()[2]}},
           {"Evaluation",
            {{.name = "task",
              .value = "TASK",
              .help = "loss: of all tokens; lambada: accuracy of the last word of each line.",
              .preset = "loss",
              .choices = {"loss", "lambada"}},
             {.name = "block-size",
              .value = "N",
              .help = "Tokens the model sees at once; 0: its context.",
              .preset = "0"},
             {.name = "stride",
              .value = "N",
              .help = "Tokens between the starts of neighbouring blocks; smaller ones give "
                      "more context; 0: the block size.",
              .preset = "0"},
             {.name = "batch-size", .value = "N", .help = "Blocks at once.", .preset = "4"},
             {.name = "word-perplexity",
              .help = "Also the perplexity of a word, as split at white space."}}},
           device_options(),
           result_options()},
      .examples = {{"tessera evaluate runs/quickstart --data README.md",
                    "The best model of that run on a file."},
                   {"tessera evaluate runs/quickstart --data README.md --stride 16 --json",
                    "With more context for each token; one JSON object."}},
      .min_operands = 1,
      .max_operands = 1,
      .completes = Operand::kFile,
      .run = evaluate};
  return command;
}

}  // namespace tessera::cli
