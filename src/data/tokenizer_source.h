// The tokenizer that data.tokenizer means, trained on the data where it says so. Owns: its cache
// entry. Not: which text that is (prepare.h).
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/file_system.h"
#include "base/log.h"
#include "config/config.h"
#include "data/documents.h"
#include "data/setting_names.h"
#include "tokenizer/tokenizer.h"

namespace tessera {

enum class TokenizerText { kTrain, kValidation };
using ReadText = std::function<void(DocumentSink&, TokenizerText)>;

// byte | char | bpe:N | a folder. `text_key` stands for the text that `read` gives: a tokenizer
// trained on it is kept under tokenizers/ of `cache`. char takes the characters of all text (one
// that comes only in the validation text must have an id too), bpe:N learns from the training part.
// byte and char have an end-of-text token where data.separator asks for one; char only where a
// split has more than one document, so that a single text has just its characters. Error{kConfig}
// for hub:REPO.
std::shared_ptr<const Tokenizer> make_tokenizer(const DataConfig& config,
                                                const std::string& text_key, const Path& cache,
                                                FileSystem& files, Log& log,
                                                const SettingNames& names, const ReadText& read);

int prepare_threads(const DataConfig& config);  // data.prepare_threads, or all processors

// Where there is no text: byte or a folder. Error{kConfig} for the rest.
std::shared_ptr<const Tokenizer> make_tokenizer_without_text(const DataConfig& config,
                                                             const SettingNames& names = {});

}  // namespace tessera
