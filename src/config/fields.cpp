#include "config/fields.h"

#include <algorithm>

#include "config/checks.h"
#include "config/field_row.h"
#include "config/format.h"
#include "config/parallel_fields.h"

namespace tessera {
namespace {

// Names in the order of the enums of config.h.
constexpr std::string_view kFormats[] = {"auto", "text", "jsonl", "tsv", "csv"};
constexpr std::string_view kSamplings[] = {"epochs", "windows"};
constexpr std::string_view kLastBlocks[] = {"drop", "keep"};
constexpr std::string_view kNonFinites[] = {"skip", "stop"};
constexpr std::string_view kLogRanks[] = {"0", "all"};
// Names that a registry of a higher layer knows.
constexpr std::string_view kOptimizers[] = {"adamw"};
constexpr std::string_view kSchedules[] = {"constant",     "linear",      "cosine", "wsd",
                                           "inverse_sqrt", "exponential", "plateau"};

constexpr double kMost = kMostWhole;

constexpr FieldGroup kGroups[] = {
    {"run", "The run itself: where it lives, what it is called, on what it runs."},
    {"model", "The model's size and structure: by preset, by number, or from an existing model."},
    {"data", "Which text is read and how it is cut into blocks."},
    {"optim", "The optimizer and its learning rate."},
    {"train", "How long to train, in which batches, and when to evaluate."},
    {"parallel", "How the work is spread over ranks."},
    {"precision", "Number formats of compute and communication."},
    {"checkpoint", "When the run is saved and what is kept."},
    {"log", "When and by whom progress is reported."},
};

constexpr Field kFirstFields[] = {
    row<&Config::run, &RunConfig::dir>("run.dir", "Folder of the run: log, checkpoints, record.")
        .path()
        .unset_is("runs/NAME under the working folder"),
    row<&Config::run, &RunConfig::name>("run.name", "Name of the run.")
        .checked(check_run_name)
        .unset_is("the config file's name"),
    row<&Config::run, &RunConfig::seed>(
        "run.seed", "Seed of initial weights, order of data, dropout and samples.")
        .at_least(0)
        .at_most(kMost)
        .refuse(),
    row<&Config::run, &RunConfig::device>(
        "run.device", "auto, cpu, cuda or cuda:N; auto takes a GPU where there is one.")
        .checked(check_device)
        .warn(),
    row<&Config::run, &RunConfig::notes>("run.notes", "Free text, kept with the run."),
    row<&Config::run, &RunConfig::threads>(
        "run.threads",
        "Threads of tensor operations. Sums may differ in the last bits between thread counts.")
        .at_least(0)
        .at_most(1024)  // with thousands, sorts inside torch take more stack than a process has
        .unset_is("all cores")
        .warn(),

    row<&Config::model, &ModelConfig::preset>(
        "model.preset",
        "A named size. Given after the numbers (in a later file, or as an override), it replaces "
        "them; numbers beside or after it change single sizes.")
        .checked(check_preset)
        .unset_is("sizes by number"),
    row<&Config::model, &ModelConfig::n_layer>("model.n_layer", "Number of blocks.")
        .at_least(0)
        .at_most(10000)
        .unset_is("from the preset")
        .refuse(),
    row<&Config::model, &ModelConfig::n_head>("model.n_head",
                                              "Attention heads of a block; divides n_embd.")
        .at_least(0)
        .at_most(10000)
        .unset_is("from the preset")
        .refuse(),
    row<&Config::model, &ModelConfig::n_embd>("model.n_embd", "Width of the hidden states.")
        .at_least(0)
        .at_most(1e6)
        .unset_is("from the preset")
        .refuse(),
    row<&Config::model, &ModelConfig::n_positions>("model.n_positions",
                                                   "Longest context, learned positions.")
        .in("tokens")
        .at_least(0)
        .at_most(1e8)
        .unset_is("from the preset, else data.block_size")
        .refuse(),
    row<&Config::model, &ModelConfig::vocab_size>("model.vocab_size",
                                                  "Entries of the vocabulary before padding.")
        .at_least(0)
        .at_most(1e8)
        .unset_is("the tokenizer's")
        .refuse(),
    row<&Config::model, &ModelConfig::dropout>(
        "model.dropout",
        "Dropout of all three sites. Given after a single site's, it replaces that.")
        .at_least(0)
        .below(1)
        .refuse(),
    row<&Config::model, &ModelConfig::embd_dropout>("model.embd_dropout",
                                                    "Dropout after the embeddings.")
        .at_least(-1)
        .below(1)
        .unset_is("model.dropout")
        .refuse(),
    row<&Config::model, &ModelConfig::attn_dropout>("model.attn_dropout",
                                                    "Dropout of attention weights.")
        .at_least(-1)
        .below(1)
        .unset_is("model.dropout")
        .refuse(),
    row<&Config::model, &ModelConfig::resid_dropout>(
        "model.resid_dropout", "Dropout before each addition to the residual stream.")
        .at_least(-1)
        .below(1)
        .unset_is("model.dropout")
        .refuse(),
    row<&Config::model, &ModelConfig::pad_vocab_to>(
        "model.pad_vocab_to",
        "The vocabulary's rows are padded to a multiple of this; padding is never predicted.")
        .at_least(1)
        .at_most(65536)
        .refuse(),
    row<&Config::model, &ModelConfig::init_from>(
        "model.init_from",
        "A model to start from: a Hugging Face folder, a checkpoint or a run's folder. "
        "Sizes are its own.")
        .path()
        .or_name(is_hub_name)
        .unset_is("random weights")
        .refuse(),
    row<&Config::model, &ModelConfig::layer_norm_epsilon>("model.layer_norm_epsilon",
                                                          "Added to the variance in layer norms.")
        .above(0)
        .at_most(1)
        .refuse(),
    row<&Config::model, &ModelConfig::init_std>(
        "model.init_std",
        "Standard deviation of initial weights; that of projections into the residual stream is "
        "divided by sqrt(2 n_layer).")
        .above(0)
        .at_most(10)
        .refuse(),
    row<&Config::model, &ModelConfig::tie_head>(
        "model.tie_head", "The output projection shares the weights of the token embedding.")
        .refuse(),

    row<&Config::data, &DataConfig::train>(
        "data.train",
        "Training text: a file, a folder, a glob, `builtin`, or a list of files. A resumed run "
        "compares its content, so files may move.")
        .or_name(is_corpus_name)
        .unset_is("builtin, a corpus that the program makes"),
    row<&Config::data, &DataConfig::validation>("data.validation",
                                                "Text for evaluation, named as data.train.")
        .or_name(is_corpus_name)
        .unset_is("the part of data.train that train_fraction leaves")
        .warn(),
    row<&Config::data, &DataConfig::format>(
        "data.format", "Format of the files; auto goes by their names (.jsonl, .tsv, .csv, text).")
        .one_of(kFormats)
        .refuse(),
    row<&Config::data, &DataConfig::train_fraction>(
        "data.train_fraction", "Part of data.train to train on, from its start.")
        .at_least(0)
        .below(1)
        .unset_is("all of it; without data.validation 0.95, and the rest validates")
        .refuse(),
    row<&Config::data, &DataConfig::truncate>(
        "data.truncate", "Part of the text that is kept, from its start, before it is split.")
        .above(0)
        .at_most(1)
        .refuse(),
    row<&Config::data, &DataConfig::tokenizer>(
        "data.tokenizer",
        "byte; char (the characters of the data); a folder with tokenizer files; or "
        "bpe:N, a byte-level BPE of N entries trained on the data. A resumed run compares its "
        "content, so the folder may move.")
        .path()
        .or_name(is_tokenizer_name)
        .checked(check_tokenizer),
    row<&Config::data, &DataConfig::block_size>("data.block_size", "Tokens of one sequence.")
        .in("tokens")
        .at_least(0)
        .at_most(1e8)
        .unset_is("model.n_positions")
        .refuse(),
    row<&Config::data, &DataConfig::stride>(
        "data.stride", "Distance between the starts of neighbouring blocks; 1 draws every window.")
        .in("tokens")
        .at_least(0)
        .at_most(1e8)
        .unset_is("data.block_size")
        .refuse(),
    row<&Config::data, &DataConfig::sampling>(
        "data.sampling",
        "epochs: each block once an epoch; windows: blocks at random starts, with repetition.")
        .one_of(kSamplings)
        .refuse(),
    row<&Config::data, &DataConfig::shuffle>("data.shuffle",
                                             "A new order of the blocks for every epoch.")
        .refuse(),
    row<&Config::data, &DataConfig::last_block>(
        "data.last_block", "What becomes of tokens at the end that do not fill a block.")
        .one_of(kLastBlocks)
        .refuse(),
    row<&Config::data, &DataConfig::drop_last_batch>(
        "data.drop_last_batch", "Leave out an epoch's last global batch where it is not full.")
        .refuse(),
    row<&Config::data, &DataConfig::separator>(
        "data.separator", "Between documents: none, end-of-text (the token), or any text.")
        .refuse(),
    row<&Config::data, &DataConfig::text_field>("data.text_field",
                                                "Field of JSON lines that holds the text.")
        .refuse(),
    row<&Config::data, &DataConfig::text_column>(
        "data.text_column", "Column of TSV and CSV files: its name, or its number from 0.")
        .unset_is("`text`, `sentence`, or the first")
        .refuse(),
    row<&Config::data, &DataConfig::special_tokens>(
        "data.special_tokens",
        "Read special tokens such as <|endoftext|> in the text as tokens, not as plain text.")
        .refuse(),
    row<&Config::data, &DataConfig::cache_dir>("data.cache_dir", "Where prepared data is kept.")
        .path()
        .unset_is("$TESSERA_CACHE, else ~/.cache/tessera"),
    row<&Config::data, &DataConfig::prepare_threads>("data.prepare_threads",
                                                     "Threads that prepare data.")
        .at_least(0)
        .at_most(4096)
        .unset_is("all cores"),

    row<&Config::optim, &OptimConfig::name>("optim.name", "The optimizer.")
        .one_of(kOptimizers)
        .refuse(),
    row<&Config::optim, &OptimConfig::lr>("optim.lr", "Peak learning rate.")
        .at_least(0)
        .at_most(1e3)
        .warn(),
    row<&Config::optim, &OptimConfig::min_lr>("optim.min_lr",
                                              "Where the schedule ends; absolute, not a factor.")
        .at_least(0)
        .at_most(1e3)
        .warn(),
    row<&Config::optim, &OptimConfig::betas>("optim.betas", "Decay rates of Adam's two moments.")
        .at_least(0)
        .below(1)
        .warn(),
    row<&Config::optim, &OptimConfig::eps>("optim.eps", "Added to the root of the second moment.")
        .above(0)
        .at_most(1)
        .warn(),
    row<&Config::optim, &OptimConfig::weight_decay>(
        "optim.weight_decay", "Decoupled decay of matrices; biases and norms have none.")
        .at_least(0)
        .at_most(100)
        .warn(),
    row<&Config::optim, &OptimConfig::schedule>(
        "optim.schedule",
        "Course of the learning rate after the warm-up; plateau follows the "
        "evaluation loss.")
        .one_of(kSchedules)
        .warn(),
    row<&Config::optim, &OptimConfig::warmup>(
        "optim.warmup", "Linear warm-up from 0: steps, or below 1 a fraction of optim.decay_steps.")
        .in("steps or fraction")
        .at_least(0)
        .at_most(kMost)
        .warn(),
    row<&Config::optim, &OptimConfig::decay_steps>(
        "optim.decay_steps", "Step at which the schedule reaches optim.min_lr, warm-up included.")
        .in("steps")
        .at_least(0)
        .at_most(kMost)
        .unset_is("the end of training")
        .warn(),
    row<&Config::optim, &OptimConfig::wsd_decay>(
        "optim.wsd_decay", "Schedule wsd: the last part of optim.decay_steps, in which it decays.")
        .above(0)
        .at_most(1)
        .warn(),
    row<&Config::optim, &OptimConfig::exponential_gamma>(
        "optim.exponential_gamma",
        "Schedule exponential: factor of every step after the warm-up, down to optim.min_lr.")
        .above(0)
        .at_most(1)
        .warn(),
    row<&Config::optim, &OptimConfig::plateau_factor>(
        "optim.plateau_factor", "Schedule plateau: factor of the rate when evaluation stalls.")
        .above(0)
        .below(1)
        .warn(),
    row<&Config::optim, &OptimConfig::plateau_patience>(
        "optim.plateau_patience",
        "Schedule plateau: evaluations without a better loss before the rate falls.")
        .at_least(1)
        .at_most(kMost)
        .warn(),
    row<&Config::optim, &OptimConfig::grad_clip>("optim.grad_clip",
                                                 "Largest global norm of the gradient.")
        .at_least(0)
        .unset_is("off")
        .warn(),

    row<&Config::train, &TrainConfig::max_steps>(
        "train.max_steps", "Optimizer steps in total; the earlier of the two limits ends.")
        .in("steps")
        .at_least(0)
        .at_most(kMost)
        .unset_is("no limit"),
    row<&Config::train, &TrainConfig::max_epochs>("train.max_epochs",
                                                  "Passes over the data in total.")
        .in("epochs")
        .at_least(0)
        .at_most(1e9)
        .unset_is("no limit"),
    row<&Config::train, &TrainConfig::global_batch_size>(
        "train.global_batch_size",
        "Sequences of one optimizer step over all ranks; part of what a run is.")
        .in("sequences")
        .at_least(0)
        .at_most(1e9)
        .unset_is("batch_size × gradient_accumulation × ranks")
        .refuse(),
    row<&Config::train, &TrainConfig::batch_size>("train.batch_size",
                                                  "Rows of one micro-batch of one rank.")
        .in("sequences")
        .at_least(0)
        .at_most(1e9)
        .unset_is("from the other two, else 8"),
    row<&Config::train, &TrainConfig::gradient_accumulation>(
        "train.gradient_accumulation",
        "Micro-batches of one step; given with the other two, they must agree.")
        .at_least(0)
        .at_most(1e9)
        .unset_is("from the other two, else 1"),
    row<&Config::train, &TrainConfig::eval_every>("train.eval_every",
                                                  "How often to evaluate on validation text.")
        .at_least(0)
        .at_most(kMost)
        .unset_is("never"),
    row<&Config::train, &TrainConfig::eval_batches>(
        "train.eval_batches", "Batches of an evaluation, over all ranks, the same ones each time.")
        .at_least(0)
        .at_most(kMost)
        .unset_is("all"),
    row<&Config::train, &TrainConfig::eval_batch_size>("train.eval_batch_size",
                                                       "Rows of one batch of an evaluation.")
        .in("sequences")
        .at_least(0)
        .at_most(1e9)
        .unset_is("train.global_batch_size"),
    row<&Config::train, &TrainConfig::early_stopping_patience>(
        "train.early_stopping_patience", "Stop after this many evaluations without a better loss.")
        .in("evaluations")
        .at_least(0)
        .at_most(kMost)
        .unset_is("off"),
    row<&Config::train, &TrainConfig::non_finite>(
        "train.non_finite",
        "On a loss or gradient that is not finite: skip the batch, or stop. In f16 a gradient that "
        "overflows by the loss scale is neither: its batch is left out and the scale halves.")
        .one_of(kNonFinites),
    row<&Config::train, &TrainConfig::max_skipped>(
        "train.max_skipped",
        "Stop after more skipped batches in a row; those that lower f16's loss scale do not count.")
        .in("steps")
        .at_least(0)
        .at_most(kMost),
    row<&Config::train, &TrainConfig::sample_every>("train.sample_every",
                                                    "How often to print a text of the model.")
        .at_least(0)
        .at_most(kMost)
        .unset_is("never"),
    row<&Config::train, &TrainConfig::sample_prompt>("train.sample_prompt",
                                                     "What the sample continues.")
        .unset_is("the start of the validation text"),
    row<&Config::train, &TrainConfig::sample_tokens>("train.sample_tokens", "Length of a sample.")
        .in("tokens")
        .at_least(1)
        .at_most(1e6),
    row<&Config::train, &TrainConfig::auto_batch>(
        "train.auto_batch",
        "Take the largest train.batch_size that fits into the device's memory."),
    row<&Config::train, &TrainConfig::auto_block_size>(
        "train.auto_block_size",
        "Take the longest data.block_size that fits into the device's memory.")
        .refuse(),
};

constexpr Field kLastFields[] = {
    row<&Config::checkpoint, &CheckpointConfig::every>("checkpoint.every", "How often to save.")
        .at_least(0)
        .at_most(kMost)
        .unset_is("never"),
    row<&Config::checkpoint, &CheckpointConfig::keep>(
        "checkpoint.keep", "Newest checkpoints to keep; the best one is kept apart.")
        .at_least(0)
        .at_most(1e6)
        .unset_is("all"),
    row<&Config::checkpoint, &CheckpointConfig::best>("checkpoint.best",
                                                      "Keep the model of the best evaluation."),
    row<&Config::checkpoint, &CheckpointConfig::on_exit>(
        "checkpoint.on_exit", "Save when training ends or is stopped by a signal."),
    row<&Config::checkpoint, &CheckpointConfig::unified_model>(
        "checkpoint.unified_model",
        "Of a run whose checkpoints lie in shards: at its end, make one model of the best of them "
        "(else of the last) in RUN/model, as Hugging Face lays it out."),

    row<&Config::log, &LogConfig::every>("log.every", "How often to report a step.")
        .at_least(0)
        .at_most(kMost)
        .unset_is("never"),
    row<&Config::log, &LogConfig::ranks>("log.ranks", "Who reports: rank 0, or all.")
        .one_of(kLogRanks),
    row<&Config::log, &LogConfig::trace_step>(
        "log.trace_step",
        "A step whose instructions and communication each rank records with their times, in "
        "RUN/trace, as chrome://tracing and Perfetto read it.")
        .at_least(0)
        .at_most(kMost)
        .unset_is("none"),
};

// In the order of kGroups.
constexpr auto kFields = [] {
  std::array<Field, std::size(kFirstFields) + std::size(kParallelFields) + std::size(kLastFields)>
      all;
  Field* next = std::ranges::copy(kFirstFields, all.data()).out;
  next = std::ranges::copy(kParallelFields, next).out;
  std::ranges::copy(kLastFields, next);
  return all;
}();

}  // namespace

std::string_view to_string(Strategy strategy) {
  return kStrategies[static_cast<std::size_t>(strategy)];
}

std::string_view to_string(ResumePolicy policy) {
  switch (policy) {
    case ResumePolicy::kFree: return "free";
    case ResumePolicy::kWarn: return "warn";
    case ResumePolicy::kRefuse: return "refuse";
  }
  return "refuse";
}

std::string_view to_string(FieldType type) {
  switch (type) {
    case FieldType::kBoolean: return "true or false";
    case FieldType::kInteger: return "whole number";
    case FieldType::kReal: return "number";
    case FieldType::kText: return "text";
    case FieldType::kChoice: return "choice";
    case FieldType::kPath: return "path";
    case FieldType::kPaths: return "path or list of paths";
    case FieldType::kPair: return "list of two numbers";
    case FieldType::kInterval: return "interval";
    case FieldType::kCheckpointing: return "none, selective, full or a whole number from 1";
  }
  return "text";
}

std::string Field::range_text() const {
  const bool low = min > -1e300, high = max < 8e15;
  std::string text;
  if (low) text = (min_allowed ? "at least " : "above ") + format_number(min);
  if (low && high) text += " and ";
  if (high) text += (max_allowed ? "at most " : "below ") + format_number(max);
  return text;
}

std::span<const Field> fields() { return kFields; }

const Field* find_field(std::string_view key) {
  for (const Field& field : kFields) {
    if (field.key == key || (!field.alias.empty() && field.alias == key)) return &field;
  }
  return nullptr;
}

std::span<const FieldGroup> field_groups() { return kGroups; }

}  // namespace tessera
