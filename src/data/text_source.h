// The text of a data setting as a stream of documents that can be read more than once. Owns: files
// and the built-in corpus behind one interface, its fingerprint, progress over files. Not: tokens.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/log.h"
#include "data/data_cache.h"
#include "data/documents.h"
#include "data/source_files.h"

namespace tessera {

inline constexpr std::string_view kBuiltinCorpusName = "builtin";

class TextSource {
 public:
  using Progress = std::function<void(std::uint64_t bytes, std::uint64_t total)>;

  // Error{kData, kConfig} where `entries` mean nothing that can be read.
  static TextSource from_entries(const std::vector<std::string>& entries, DataFormat format,
                                 Log& log, const SettingNames& names = {});
  static TextSource builtin(std::uint64_t seed, std::size_t bytes);

  bool is_builtin() const { return builtin_bytes_ > 0; }
  const std::vector<SourceFile>& files() const { return files_; }
  std::uint64_t file_bytes() const { return file_bytes_; }
  std::string name() const;  // for messages: the first file and how many more
  // Of the bytes and formats of all files; not of their names.
  std::string fingerprint(FileHashes& hashes) const;
  void read(const DocumentOptions& options, DocumentSink& sink, const Progress& progress) const;

 private:
  std::vector<SourceFile> files_;
  std::uint64_t file_bytes_ = 0;
  std::uint64_t builtin_seed_ = 0;
  std::size_t builtin_bytes_ = 0;
};

}  // namespace tessera
