// From a data setting to tokens: sources, tokenizer, split, cache. Owns: the order of these steps.
// Not: each of them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/file_system.h"
#include "base/log.h"
#include "config/config.h"
#include "data/dataset.h"
#include "data/setting_names.h"
#include "tokenizer/tokenizer.h"

namespace tessera {

struct PrepareProgress {
  std::string_view stage;                    // "measuring", "training the tokenizer", "encoding"
  std::uint64_t bytes = 0, total_bytes = 0;  // of the files as they lie on disk
  std::uint64_t tokens = 0;                  // "encoding": written so far
};
// Called from one thread, often; the callee limits what it prints.
using PrepareCallback = std::function<void(const PrepareProgress&)>;

struct PreparedData {
  std::shared_ptr<const Tokenizer> tokenizer;
  std::shared_ptr<const TokenDataset> train, validation;
  bool from_cache = false;          // no text was read
  bool builtin_validation = false;  // the entropy of `validation` is known: true_loss()
  std::string key;                  // hash of everything that the tokens depend on
};

// What `config` means, from the cache if it is there. With `tokenizer` that one is used, whatever
// data.tokenizer says (a model that brings its own).
//   text     data.train keeps its first data.truncate; of that the first data.train_fraction
//            trains; the rest validates, or is left out where data.validation is given. Without
//            both the last 5 % validate. Lengths count characters over all documents.
//   folder   that prepare_folder() made; Error{kCorrupt} where it is not whole.
//   .tok     a token file, used as it is; its tokenizer must be the one of data.tokenizer.
//   builtin  the built-in corpus, as training text by itself only.
// Error{kConfig, kData, kIo}. A cache entry that is corrupt is made again, with a warning.
PreparedData prepare_dataset(const DataConfig& config, FileSystem& files, Log& log,
                             const PrepareCallback& progress = {},
                             std::shared_ptr<const Tokenizer> tokenizer = {});

// The same into `folder`: train.tok, validation.tok, tokenizer/, and prepare.json, which tells
// whether a later call has anything to do (prepared_folder.h). Everything is verified before it is
// trusted, and replaces what was there only when all of it is whole. Error{kIo} where another
// process does the same. `names` are how the caller spells the settings.
PreparedData prepare_folder(const DataConfig& config, const Path& folder, FileSystem& files,
                            Log& log, const PrepareCallback& progress = {},
                            const SettingNames& names = kOptionNames);

// The least loss in nats a token that any model can expect on the first `targets` targets of the
// validation text; nothing where it is not known.
std::optional<double> true_loss(const PreparedData& data, std::int64_t targets);

}  // namespace tessera
