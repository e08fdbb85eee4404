#include "data/tokenizer_source.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <vector>

#include "base/error.h"
#include "base/hash.h"
#include "base/machine.h"
#include "base/text_format.h"
#include "data/tokenizer_sinks.h"
#include "tokenizer/bpe_trainer.h"
#include "tokenizer/byte_tokenizer.h"

namespace tessera {
namespace {

constexpr std::string_view kBpePrefix = "bpe:", kHubPrefix = "hub:";

EndOfText end_of_text(const DataConfig& config) {
  return config.separator == "end-of-text" ? EndOfText::kAdded : EndOfText::kNone;
}

// "data.tokenizer=bpe:8192"
std::string setting(const SettingNames& names, const std::string& value) {
  return std::string(names.tokenizer) + "=" + value;
}

std::int64_t bpe_size(const std::string& name, const SettingNames& names) {
  std::int64_t size = 0;
  const char* end = name.data() + name.size();
  const auto [stop, code] = std::from_chars(name.data() + kBpePrefix.size(), end, size);
  if (code != std::errc{} || stop != end) {
    throw Error(ErrorKind::kConfig, setting(names, name) + " is not bpe: and a number", {},
                "Write for example " + setting(names, "bpe:8192") + ".");
  }
  return size;
}

std::unique_ptr<Tokenizer> train_char(const DataConfig& config, const ReadText& read) {
  CharSink sink;
  read(sink, TokenizerText::kTrain);
  const std::uint64_t in_train = sink.documents;
  read(sink, TokenizerText::kValidation);
  const bool several = in_train > 1 || sink.documents - in_train > 1;
  return sink.vocabulary.make_tokenizer(several ? end_of_text(config) : EndOfText::kNone);
}

std::unique_ptr<Tokenizer> train_bpe(const DataConfig& config, Log& log, const SettingNames& names,
                                     const ReadText& read) {
  BpeTrainingOptions options;
  options.vocab_size = bpe_size(config.tokenizer, names);
  options.shortfall = Shortfall::kSmaller;
  options.threads = prepare_threads(config);
  const std::int64_t wanted = options.vocab_size;
  BpeTrainer trainer(std::move(options));
  BpeSink sink(trainer);
  read(sink, TokenizerText::kTrain);
  std::unique_ptr<Tokenizer> tokenizer = trainer.train();
  if (tokenizer->vocab_size() < wanted) {
    log.info("the text has enough repeated words for " + format_count(tokenizer->vocab_size()) +
             " of the " + format_count(wanted) + " tokens of " + setting(names, config.tokenizer));
  }
  return tokenizer;
}

}  // namespace

int prepare_threads(const DataConfig& config) {
  if (config.prepare_threads > 0) return static_cast<int>(config.prepare_threads);
  return std::max(1, machine_facts().usable_processors());
}

std::shared_ptr<const Tokenizer> make_tokenizer_without_text(const DataConfig& config,
                                                             const SettingNames& names) {
  const std::string& name = config.tokenizer;
  if (name == "byte") return make_byte_tokenizer(end_of_text(config));
  if (name.starts_with(kHubPrefix)) {
    throw Error(ErrorKind::kConfig, setting(names, name) + ": this version cannot download", {},
                "Fetch the files by other means and give their folder.");
  }
  if (name == "char" || name.starts_with(kBpePrefix)) {
    throw Error(ErrorKind::kConfig,
                setting(names, name) + " learns from text, but data.train is a token file", {},
                "Give the folder of the tokenizer that made it.");
  }
  return load_tokenizer(name);
}

std::shared_ptr<const Tokenizer> make_tokenizer(const DataConfig& config,
                                                const std::string& text_key, const Path& cache,
                                                FileSystem& files, Log& log,
                                                const SettingNames& names, const ReadText& read) {
  const std::string& name = config.tokenizer;
  const bool characters = name == "char";
  if (!characters && !name.starts_with(kBpePrefix))
    return make_tokenizer_without_text(config, names);
  if (!characters) bpe_size(name, names);
  const std::string key =
      content_hash("tokenizer 1\n" + name + "\n" + text_key + "\n" +
                   (end_of_text(config) == EndOfText::kAdded ? "end-of-text" : "none"));
  const Path folder = cache / "tokenizers" / key;
  // The marker comes last, so that a folder that is being written is not read.
  const Path marker = folder / "hash";
  if (files.exists(marker)) {
    try {
      std::shared_ptr<const Tokenizer> known = load_tokenizer(folder);
      if (known->hash() + "\n" == files.read(marker)) return known;
      log.warning("the tokenizer is trained again: " + folder.string() + " was changed");
    } catch (const Error& error) {
      log.warning(std::string("the tokenizer is trained again: ") + error.what());
    }
  }
  std::unique_ptr<Tokenizer> made =
      characters ? train_char(config, read) : train_bpe(config, log, names, read);
  made->save(files, folder);
  write_file_atomically(files, marker, made->hash() + "\n");
  return made;
}

}  // namespace tessera
