// A folder of prepared data. Owns: its layout, and prepare.json, without which the rest is not
// valid. Not: making the data (prepare.h).
//
//   train.tok  validation.tok  tokenizer/  prepare.json
#pragma once

#include <memory>
#include <string>

#include "base/file_system.h"
#include "tokenizer/tokenizer.h"

namespace tessera {

struct PreparedFolder {
  explicit PreparedFolder(const Path& folder);
  Path train, validation, tokenizer, summary;
};

// Whether `path` is a folder that looks like prepared data, whole or not.
bool is_prepared_folder(const Path& path);

// Its tokenizer. Error{kCorrupt} that names the file where prepare.json is missing, or is not of
// the token files and the tokenizer that lie there: a `tessera prepare` that did not come to its
// end. Of a token file head and trailer are looked at; its tokens are not read.
std::shared_ptr<const Tokenizer> check_prepared_folder(const PreparedFolder& folder,
                                                       FileSystem& files);

// The `key` of prepare.json; empty where there is none.
std::string prepared_key(const PreparedFolder& folder, FileSystem& files);

// prepare.json for the files in `folder`.
void write_prepared_summary(const PreparedFolder& folder, const std::string& key,
                            const Tokenizer& tokenizer, FileSystem& files);

// The files of `staged`, which are whole, take the place of those of `folder` by renames alone, so
// that a full disk does not end it; the summary is last. What was in `folder` goes into `staged`.
void put_in_place(const PreparedFolder& staged, const PreparedFolder& folder, FileSystem& files);

}  // namespace tessera
