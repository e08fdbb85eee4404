#include "data/prepare.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <limits>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/hash.h"
#include "base/new_folder.h"
#include "base/text_format.h"
#include "data/builtin_corpus.h"
#include "data/data_cache.h"
#include "data/document_encoder.h"
#include "data/document_split.h"
#include "data/prepared_folder.h"
#include "data/sampler.h"
#include "data/text_source.h"
#include "data/tokenizer_source.h"

namespace tessera {
namespace {

constexpr double kDefaultTrainFraction = 0.95;
constexpr std::uint64_t kNoLimit = std::numeric_limits<std::uint64_t>::max();
// Up to this many tokens a file is read in full before it is trusted, which takes well below a
// second; above, only head, trailer and size are looked at.
constexpr std::int64_t kVerifyTokens = 64'000'000;

std::string tail_validates(const SettingNames& names) {
  return "no " + std::string(names.validation) + ": the last 5 % of " + std::string(names.train) +
         " validate (" + std::string(names.train_fraction) + ")";
}

bool is_builtin(const std::vector<std::string>& entries) {
  return entries.size() == 1 && entries[0] == kBuiltinCorpusName;
}

std::string number_text(double value) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, value).ptr;
  return std::string(text, end);
}

// ---- Token files that are ready

struct TokenFiles {
  Path train, validation;                      // validation may be empty
  std::shared_ptr<const Tokenizer> tokenizer;  // beside them, or none
};

// Whether data.train names token files instead of text: a prepared folder, or one file. Beside a
// file its validation and tokenizer are taken only from a prepared folder that is whole.
std::optional<TokenFiles> ready_files(const DataConfig& config, FileSystem& files) {
  if (config.train.size() != 1) return std::nullopt;
  const Path entry = config.train[0];
  const bool is_folder = is_prepared_folder(entry);
  if (!is_folder && entry.extension() != ".tok") return std::nullopt;
  const PreparedFolder folder(is_folder ? entry : entry.parent_path());
  TokenFiles found;
  found.train = is_folder ? folder.train : entry;
  if (config.validation.size() == 1) {
    found.validation = config.validation[0];
    if (found.validation.extension() != ".tok") {
      throw Error(ErrorKind::kConfig, "data.train is a token file, data.validation is not",
                  found.validation.string(), "Prepare both with `tessera prepare`.");
    }
  } else if (!config.validation.empty()) {
    throw Error(ErrorKind::kConfig, "with a token file in data.train, data.validation is one too");
  }
  if (is_folder ||
      (entry.filename() == folder.train.filename() && files.exists(folder.validation))) {
    found.tokenizer = check_prepared_folder(folder, files);
    if (found.validation.empty()) found.validation = folder.validation;
  } else if (files.is_directory(folder.tokenizer)) {
    found.tokenizer = load_tokenizer(folder.tokenizer);
  }
  return found;
}

void check_made_by(const TokenDataset& data, const Tokenizer& tokenizer) {
  if (data.tokenizer_hash() == tokenizer.hash()) return;
  throw Error(ErrorKind::kData, "the token file was made with another tokenizer", data.name(),
              "Set data.tokenizer to the tokenizer that made it, or prepare the text again.");
}

std::shared_ptr<const TokenDataset> open_verified(const Path& path, const std::string& name = {}) {
  auto data = std::make_shared<const TokenDataset>(path, name);
  if (data->size() <= kVerifyTokens) data->verify();
  return data;
}

// ---- Text

// The hidden folder in a prepared one where its successor is made. One process at a time has it; at
// the object's end it goes away.
class StagingFolder {
 public:
  // Error{kIo} where another process has it.
  StagingFolder(FileSystem& files, const Path& parent) : files_(files), path_(parent / kName) {
    files.create_directories(path_);
    lock_ = files.try_lock(path_ / kLock);
    if (!lock_) {
      throw Error(ErrorKind::kIo, "another `tessera prepare` is writing to this folder",
                  parent.string(), "Wait for its end, or choose another folder.");
    }
    for (const std::string& name : files.list(path_)) {  // what a killed one left
      if (name != kLock) files.remove_all(path_ / name);
    }
  }
  ~StagingFolder() {
    try {
      files_.remove_all(path_);
    } catch (const Error&) {
      // The result does not depend on it, and the next preparation tries again.
    }
  }
  StagingFolder(const StagingFolder&) = delete;
  StagingFolder& operator=(const StagingFolder&) = delete;

  const Path& path() const { return path_; }

  // Of a preparation that was killed; not of one at work.
  static void remove_left_over(FileSystem& files, const Path& parent) {
    if (!files.exists(parent / kName)) return;
    if (const auto lock = files.try_lock(parent / kName / kLock)) files.remove_all(parent / kName);
  }

 private:
  static constexpr const char *kName = ".preparing", *kLock = "lock";
  FileSystem& files_;
  Path path_;
  std::unique_ptr<FileLock> lock_;
};

class Preparation {
 public:
  Preparation(const DataConfig& config, FileSystem& files, Log& log,
              const PrepareCallback& progress, const SettingNames& names)
      : config_(config),
        names_(names),
        files_(files),
        log_(log),
        progress_(progress),
        cache_(data_cache_folder(config.cache_dir)),
        hashes_(files, cache_) {
    document_options_.text_field = config.text_field;
    document_options_.text_column = config.text_column;
    document_options_.names = names;
    if (config.train.empty() || is_builtin(config.train)) {
      train_ = TextSource::builtin(kBuiltinTrainSeed, kBuiltinTrainBytes);
    } else {
      train_ = TextSource::from_entries(config.train, config.format, log, names);
    }
    if (is_builtin(config.validation) || (config.validation.empty() && train_.is_builtin())) {
      validation_ = TextSource::builtin(kBuiltinValidationSeed, kBuiltinValidationBytes);
    } else if (!config.validation.empty()) {
      validation_ = TextSource::from_entries(config.validation, config.format, log, names);
    }
    refuse_token_files(train_);
    if (validation_) refuse_token_files(*validation_);
    train_fraction_ = config.train_fraction;
    if (train_fraction_ == 0) train_fraction_ = validation_ ? 1 : kDefaultTrainFraction;
    if (config.train_fraction == 0 && !validation_) log.info(tail_validates(names));
  }

  PreparedData from_cache(std::shared_ptr<const Tokenizer> tokenizer) {
    PreparedData data = with_tokenizer(std::move(tokenizer));
    const Path folder = cache_ / "tokens" / data.key;
    const PreparedFolder entry(folder);
    // A person knows the texts, not the entry.
    const std::string train_name = train_.name(),
                      validation_name = (validation_ ? *validation_ : train_).name();
    if (files_.exists(entry.train) && files_.exists(entry.validation)) {
      try {
        open(entry, data, train_name, validation_name);
        data.from_cache = !read_text_;
        return data;
      } catch (const Error& error) {
        if (error.kind() != ErrorKind::kCorrupt) throw;
        log_.warning(std::string("prepared data is made again: ") + error.what());
      }
    }
    files_.create_directories(folder);
    encode(entry, data);
    open(entry, data, train_name, validation_name);
    return data;
  }

  PreparedData into_folder(const Path& path) {
    PreparedData data = with_tokenizer({});
    const PreparedFolder folder(path);
    const std::string old_key = prepared_key(folder, files_);
    if (old_key == data.key) {
      try {
        check_prepared_folder(folder, files_);
        open(folder, data);
        data.train->verify();
        data.validation->verify();
        StagingFolder::remove_left_over(files_, path);
        data.from_cache = true;
        return data;
      } catch (const Error& error) {
        log_.warning(std::string("prepared data is made again: ") + error.what());
      }
    }
    replace(folder, path, data);
    if (!old_key.empty() && old_key != data.key) {
      log_.info("other prepared data in " + path.string() + " was replaced");
    }
    return data;
  }

 private:
  // Until all of it is whole, what is in `path` stays as it was.
  void replace(const PreparedFolder& folder, const Path& path, PreparedData& data) {
    const NewFolder parent(files_, path);
    const StagingFolder staging(files_, path);
    const PreparedFolder staged(staging.path());
    encode(staged, data);
    open(staged, data);
    data.train->verify();
    data.validation->verify();
    data.tokenizer->save(files_, staged.tokenizer);
    write_prepared_summary(staged, data.key, *data.tokenizer, files_);
    put_in_place(staged, folder, files_);
    data.train = std::make_shared<const TokenDataset>(folder.train);
    data.validation = std::make_shared<const TokenDataset>(folder.validation);
  }

  void refuse_token_files(const TextSource& source) const {
    for (const SourceFile& file : source.files()) {
      if (!file.tokens) continue;
      throw Error(ErrorKind::kConfig, "a token file cannot be one of several texts",
                  file.path.string(), std::string(names_.instead_of_tokens));
    }
  }

  void report(std::string_view stage, std::uint64_t bytes, std::uint64_t total,
              std::uint64_t tokens = 0) {
    if (progress_) progress_({stage, bytes, total, tokens});
  }

  // The tokenizer, and the key that follows from it.
  PreparedData with_tokenizer(std::shared_ptr<const Tokenizer> tokenizer) {
    const std::string text_key = this->text_key();
    PreparedData data;
    data.builtin_validation = validation_ && validation_->is_builtin();
    if (tokenizer) {
      data.tokenizer = std::move(tokenizer);
    } else {
      data.tokenizer = make_tokenizer(
          config_, text_key, cache_, files_, log_, names_,
          [&](DocumentSink& sink, TokenizerText part) { read_for_tokenizer(sink, part); });
    }
    document_options_.any_bytes = data.tokenizer->kind() == "byte";
    data.key = content_hash("tokens " + std::to_string(kTokenFileVersion) + "\n" + text_key + "\n" +
                            data.tokenizer->hash() + "\n" + config_.separator + "\n" +
                            (config_.special_tokens ? "special" : "plain"));
    return data;
  }

  // Everything that decides which text trains and validates.
  std::string text_key() {
    std::string key = "train " + train_.fingerprint(hashes_) + "\n";
    if (validation_) key += "validation " + validation_->fingerprint(hashes_) + "\n";
    key += "truncate " + number_text(config_.truncate) + " fraction " +
           number_text(train_fraction_) + "\nfield " + config_.text_field + "\ncolumn " +
           config_.text_column;
    return content_hash(key);
  }

  void read_for_tokenizer(DocumentSink& sink, TokenizerText part) {
    const std::string_view stage = "training the tokenizer";
    const auto progress = [&](std::uint64_t bytes, std::uint64_t total) {
      report(stage, bytes, total);
    };
    if (part == TokenizerText::kTrain) {
      read_split(&sink, nullptr, progress);
    } else if (validation_) {
      validation_->read(document_options_, sink, progress);
    } else {
      read_split(nullptr, &sink, progress);
    }
  }

  // data.train, its parts to the two sinks.
  void read_split(DocumentSink* train, DocumentSink* rest, const TextSource::Progress& progress) {
    read_text_ = true;
    std::vector<DocumentSplit::Section> sections{{kNoLimit, train}};
    if (config_.truncate < 1 || train_fraction_ < 1) {
      const std::uint64_t kept = part(length(), config_.truncate);
      const std::uint64_t first = part(kept, train_fraction_);
      sections = {{first, train}, {kept - first, rest}};
    }
    DocumentSplit split(std::move(sections));
    train_.read(document_options_, split, progress);
  }

  static std::uint64_t part(std::uint64_t length, double fraction) {
    return static_cast<std::uint64_t>(static_cast<double>(length) * fraction);
  }

  // Characters of data.train; read once.
  std::uint64_t length() {
    if (!length_) {
      DocumentCounter counter;
      train_.read(document_options_, counter, [&](std::uint64_t bytes, std::uint64_t total) {
        report("measuring", bytes, total);
      });
      length_ = counter.length;
    }
    return *length_;
  }

  void encode(const PreparedFolder& folder, const PreparedData& data) {
    EncodeOptions options;
    options.separator = config_.separator;
    options.special = config_.special_tokens ? SpecialTokens::kParse : SpecialTokens::kAsText;
    options.threads = prepare_threads(config_);
    const auto vocab_size = static_cast<std::uint64_t>(data.tokenizer->vocab_size());
    TokenFileWriter train_file(files_, folder.train, vocab_size);
    TokenFileWriter validation_file(files_, folder.validation, vocab_size);
    DocumentEncoder train(data.tokenizer, options, train_file);
    DocumentEncoder validation(data.tokenizer, options, validation_file);
    const std::uint64_t train_bytes = train_.file_bytes();
    const std::uint64_t all = train_bytes + (validation_ ? validation_->file_bytes() : 0);
    const auto tokens = [&] { return train_file.tokens() + validation_file.tokens(); };
    read_split(
        &train, validation_ ? nullptr : &validation,
        [&](std::uint64_t bytes, std::uint64_t) { report("encoding", bytes, all, tokens()); });
    if (validation_) {
      validation_->read(document_options_, validation, [&](std::uint64_t bytes, std::uint64_t) {
        report("encoding", train_bytes + bytes, all, tokens());
      });
    }
    train.finish();
    validation.finish();
    report("encoding", all, all, tokens());
  }

  void open(const PreparedFolder& folder, PreparedData& data, const std::string& train_name = {},
            const std::string& validation_name = {}) {
    const auto open = [&](const Path& path, const std::string& name) {
      auto split = open_verified(path, name);
      if (split->tokenizer_hash() == data.tokenizer->hash()) return split;
      throw Error(ErrorKind::kCorrupt, "the token file is of another tokenizer", path.string());
    };
    data.train = open(folder.train, train_name);
    data.validation = open(folder.validation, validation_name);
    check_sizes(data);
  }

  // Says what took all of the text.
  [[noreturn]] void refuse_empty() {
    std::string why = "the training text is empty", what_to_do = "Give more text";
    const std::uint64_t all = length(), kept = part(all, config_.truncate);
    const std::string of_all =
        ": of its " + std::to_string(all) + (all == 1 ? " character " : " characters ");
    if (all > 0 && kept == 0) {
      why += of_all + std::string(names_.truncate) + "=" + number_text(config_.truncate) +
             " keeps none";
      what_to_do += ", or raise " + std::string(names_.truncate);
    } else if (kept > 0) {
      why += of_all + std::string(names_.train_fraction) + "=" + number_text(train_fraction_) +
             " leaves all that is kept for validation";
      what_to_do += ", raise " + std::string(names_.train_fraction);
      if (!validation_) what_to_do += ", or name a file in " + std::string(names_.validation);
    }
    throw Error(ErrorKind::kData, why, train_.name(), what_to_do + ".");
  }

  void check_sizes(const PreparedData& data) {
    if (data.train->text_bytes() == 0) refuse_empty();
    if (data.train->size() < 2) {
      throw Error(ErrorKind::kData, "the training text is a single token", train_.name(),
                  "Give more text.");
    }
    if (data.validation->size() < 2) {
      throw Error(ErrorKind::kData,
                  "the validation text has " + std::to_string(data.validation->size()) +
                      " tokens, two are the least",
                  (validation_ ? *validation_ : train_).name(),
                  validation_ ? "Give more text."
                              : "Give more text, or name a file in " +
                                    std::string(names_.validation) + ".");
    }
    if (config_.block_size > 0) const Sampler fits(data.train, sampler_options(config_));
  }

  const DataConfig& config_;
  const SettingNames names_;
  FileSystem& files_;
  Log& log_;
  const PrepareCallback& progress_;
  Path cache_;
  FileHashes hashes_;
  TextSource train_;
  std::optional<TextSource> validation_;  // empty: a part of train_
  DocumentOptions document_options_;
  double train_fraction_ = 1;
  std::optional<std::uint64_t> length_;
  bool read_text_ = false;
};

// Settings that only text could follow.
void warn_of_unused(const DataConfig& config, bool tokenizer_unused, Log& log) {
  const DataConfig defaults;
  std::string unused;
  const auto add = [&](const char* key, bool given) {
    if (given) unused += (unused.empty() ? "" : ", ") + std::string(key);
  };
  add("data.tokenizer", tokenizer_unused && config.tokenizer != defaults.tokenizer);
  add("data.truncate", config.truncate != defaults.truncate);
  add("data.train_fraction",
      config.train_fraction != defaults.train_fraction && !config.validation.empty());
  add("data.separator", config.separator != defaults.separator);
  add("data.format", config.format != defaults.format);
  if (unused.empty()) return;
  log.warning("data.train is prepared data, its tokens are used as they are: " + unused +
              " has no effect. Set it when preparing.");
}

PreparedData use_ready_files(const TokenFiles& found, const DataConfig& config, Log& log,
                             std::shared_ptr<const Tokenizer> tokenizer) {
  PreparedData data;
  data.from_cache = true;
  warn_of_unused(config, tokenizer != nullptr || found.tokenizer != nullptr, log);
  if (tokenizer) {
    data.tokenizer = std::move(tokenizer);
  } else if (found.tokenizer) {
    data.tokenizer = found.tokenizer;
  } else {
    data.tokenizer = make_tokenizer_without_text(config);
  }
  data.train = open_verified(found.train);
  check_made_by(*data.train, *data.tokenizer);
  if (!found.validation.empty()) {
    data.validation = open_verified(found.validation);
    check_made_by(*data.validation, *data.tokenizer);
  } else {
    if (config.train_fraction == 0) log.info(tail_validates({}));
    const double fraction =
        config.train_fraction == 0 ? kDefaultTrainFraction : config.train_fraction;
    const std::int64_t size = data.train->size();
    const auto first = static_cast<std::int64_t>(static_cast<double>(size) * fraction);
    std::uint64_t bytes = 0;
    for (std::int64_t i = first; i < size; ++i) {
      const auto id = static_cast<TokenId>(data.train->token(i));
      if (id != data.tokenizer->end_of_text()) bytes += data.tokenizer->token_bytes(id).size();
    }
    const std::uint64_t all = data.train->text_bytes();
    data.validation = std::make_shared<TokenDataset>(data.train->slice(first, size - first, bytes));
    data.train =
        std::make_shared<TokenDataset>(data.train->slice(0, first, all - std::min(all, bytes)));
  }
  if (config.block_size > 0) const Sampler fits(data.train, sampler_options(config));
  data.key = content_hash(data.train->content_hash() + data.validation->content_hash());
  return data;
}

void log_summary(const PreparedData& data, Log& log) {
  log.detail((data.from_cache ? "data from the cache: " : "prepared: ") +
             format_count(data.train->size()) + " training tokens, " +
             format_count(data.validation->size()) + " validation tokens");
}

}  // namespace

PreparedData prepare_dataset(const DataConfig& config, FileSystem& files, Log& log,
                             const PrepareCallback& progress,
                             std::shared_ptr<const Tokenizer> tokenizer) {
  PreparedData data;
  if (const std::optional<TokenFiles> found = ready_files(config, files)) {
    data = use_ready_files(*found, config, log, std::move(tokenizer));
  } else {
    data = Preparation(config, files, log, progress, {}).from_cache(std::move(tokenizer));
  }
  log_summary(data, log);
  return data;
}

PreparedData prepare_folder(const DataConfig& config, const Path& folder, FileSystem& files,
                            Log& log, const PrepareCallback& progress, const SettingNames& names) {
  return Preparation(config, files, log, progress, names).into_folder(folder);
}

std::optional<double> true_loss(const PreparedData& data, std::int64_t targets) {
  if (!data.builtin_validation || targets < 1 || targets >= data.validation->size()) {
    return std::nullopt;
  }
  std::vector<TokenId> ids(static_cast<std::size_t>(targets) + 1);
  std::vector<std::int64_t> wide(ids.size());
  data.validation->read(0, targets + 1, wide.data());
  std::copy(wide.begin(), wide.end(), ids.begin());
  const double all = builtin_nats(data.tokenizer->decode(ids));
  const double first = builtin_nats(data.tokenizer->decode(std::span(ids).first(1)));
  return (all - first) / static_cast<double>(targets);
}

}  // namespace tessera
