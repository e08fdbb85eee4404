#include "data/text_source.h"

#include <algorithm>
#include <system_error>

#include "base/error.h"
#include "base/hash.h"
#include "data/builtin_corpus.h"

namespace tessera {

TextSource TextSource::from_entries(const std::vector<std::string>& entries, DataFormat format,
                                    Log& log, const SettingNames& names) {
  if (std::find(entries.begin(), entries.end(), kBuiltinCorpusName) != entries.end()) {
    throw Error(ErrorKind::kConfig, "`builtin` cannot be one of several texts", {},
                "Use it alone, or not at all.");
  }
  TextSource source;
  source.files_ = find_source_files(entries, format, log, names);
  for (const SourceFile& file : source.files_) {
    std::error_code code;
    const auto size = std::filesystem::file_size(file.path, code);
    if (!code) source.file_bytes_ += size;
  }
  return source;
}

TextSource TextSource::builtin(std::uint64_t seed, std::size_t bytes) {
  TextSource source;
  source.builtin_seed_ = seed;
  source.builtin_bytes_ = bytes;
  source.file_bytes_ = bytes;
  return source;
}

std::string TextSource::name() const {
  if (is_builtin()) return "the built-in corpus";
  if (files_.size() == 1) return files_[0].path.string();
  return files_[0].path.string() + " and " + std::to_string(files_.size() - 1) + " more";
}

std::string TextSource::fingerprint(FileHashes& hashes) const {
  if (is_builtin()) {
    return "builtin " + std::to_string(kBuiltinCorpusVersion) + " " +
           std::to_string(builtin_seed_) + " " + std::to_string(builtin_bytes_);
  }
  ContentHash hash;
  for (const SourceFile& file : files_) {
    hash.update(hashes.hash(file.path) + " " + std::to_string(static_cast<int>(file.format)) +
                "\n");
  }
  return hash.digest();
}

void TextSource::read(const DocumentOptions& options, DocumentSink& sink,
                      const Progress& progress) const {
  if (is_builtin()) {
    const BuiltinText made = make_builtin_text(builtin_seed_, builtin_bytes_);
    sink.text(made.text, true);
    if (progress) progress(file_bytes_, file_bytes_);
    return;
  }
  std::uint64_t before = 0;
  for (const SourceFile& file : files_) {
    std::uint64_t in_file = 0;
    read_documents(file, options, sink, [&](std::uint64_t bytes) {
      in_file = bytes;
      if (progress) progress(before + bytes, file_bytes_);
    });
    before += in_file;
  }
}

}  // namespace tessera
