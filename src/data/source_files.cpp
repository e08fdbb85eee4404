#include "data/source_files.h"

#include <glob.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "data/prepared_folder.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

struct Extension {
  std::string_view name;
  DataFormat format;
};
constexpr std::array<Extension, 9> kExtensions{{{".txt", DataFormat::kText},
                                                {".raw", DataFormat::kText},
                                                {".tokens", DataFormat::kText},
                                                {".md", DataFormat::kText},
                                                {".jsonl", DataFormat::kJsonl},
                                                {".ndjson", DataFormat::kJsonl},
                                                {".json", DataFormat::kJsonl},
                                                {".tsv", DataFormat::kTsv},
                                                {".csv", DataFormat::kCsv}}};
constexpr std::string_view kTokenFileExtension = ".tok";

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return text;
}

std::string extension_of(const Path& path) {
  std::string extension = lower(path.extension().string());
  if (extension == ".gz" || extension == ".zst")
    extension = lower(path.stem().extension().string());
  return extension;
}

std::optional<SourceFile> classify(const Path& path, DataFormat format) {
  const std::string extension = extension_of(path);
  if (extension == kTokenFileExtension) return SourceFile{path, DataFormat::kText, true};
  if (format != DataFormat::kAuto) return SourceFile{path, format, false};
  for (const Extension& known : kExtensions) {
    if (extension == known.name) return SourceFile{path, known.format, false};
  }
  return std::nullopt;
}

bool hidden(const Path& path) { return path.filename().string().starts_with('.'); }

std::vector<Path> files_below(const Path& folder) {
  std::vector<Path> paths;
  std::error_code code;
  fs::recursive_directory_iterator it(folder, code);
  for (const fs::recursive_directory_iterator end; !code && it != end; it.increment(code)) {
    std::error_code ignored;
    if (hidden(it->path())) {
      if (it->is_directory(ignored)) it.disable_recursion_pending();
    } else if (it->is_regular_file(ignored)) {
      paths.push_back(it->path());
    }
  }
  if (code) {
    throw Error(ErrorKind::kData, "cannot list the folder: " + code.message(), folder.string(),
                "Check its permissions.");
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

std::vector<Path> matches_of(const std::string& pattern) {
  glob_t found{};
  const int code = ::glob(pattern.c_str(), GLOB_NOSORT, nullptr, &found);
  std::vector<Path> paths;
  if (code == 0) paths.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  ::globfree(&found);
  std::sort(paths.begin(), paths.end());
  return paths;
}

class Finder {
 public:
  Finder(DataFormat format, Log& log, const SettingNames& names)
      : format_(format), log_(log), names_(names) {}

  void add(const std::string& entry) {
    const std::size_t before = files.size();
    std::error_code code;
    std::vector<Path> paths;
    if (fs::exists(entry, code)) {
      paths.emplace_back(entry);
    } else if (entry.find_first_of("*?[") != std::string::npos) {
      paths = matches_of(entry);
    }
    if (paths.empty()) {
      throw Error(ErrorKind::kData,
                  code ? "cannot open the text: " + code.message() : "no file or folder matches",
                  entry,
                  "Check the path; relative ones count from the config's folder in a config, else "
                  "from the working folder.");
    }
    for (const Path& path : paths) {
      if (is_prepared_folder(path)) {
        throw Error(ErrorKind::kConfig, "the folder holds prepared tokens, not text", path.string(),
                    std::string(names_.instead_of_tokens));
      }
      if (fs::is_directory(path, code)) {
        for (const Path& file : files_below(path)) add_found(file);
      } else {
        add_named(path);
      }
    }
    if (files.size() == before) {
      throw Error(
          ErrorKind::kData,
          "the folder holds no text file" + (skipped_.empty() ? "" : ", but" + skipped_text()),
          entry, "Name the files, or set " + std::string(names_.format) + ".");
    }
    if (!skipped_.empty()) log_.info("left out" + skipped_text() + " in " + entry);
    skipped_.clear();
  }

  std::vector<SourceFile> files;

 private:
  void add_named(const Path& path) {
    std::error_code code;
    if (!fs::is_regular_file(path, code)) {
      throw Error(ErrorKind::kData, "cannot read the text: not a regular file", path.string(),
                  "Store it in a file first.");
    }
    const std::optional<SourceFile> file = classify(path, format_);
    if (!file) {
      throw Error(ErrorKind::kConfig, "the file's name does not tell its format", path.string(),
                  "Set " + std::string(names_.format) + " to text, jsonl, tsv or csv.");
    }
    files.push_back(*file);
  }

  void add_found(const Path& path) {
    if (const std::optional<SourceFile> file = classify(path, format_)) {
      files.push_back(*file);
    } else {
      skipped_.push_back(path.filename().string());
    }
  }

  // " 3 files of unknown format (a.bin, b.png, …)"
  std::string skipped_text() const {
    if (skipped_.empty()) return "";
    std::string text = " " + std::to_string(skipped_.size()) +
                       (skipped_.size() == 1 ? " file" : " files") + " of unknown format (";
    for (std::size_t i = 0; i < std::min<std::size_t>(3, skipped_.size()); ++i) {
      text += (i > 0 ? ", " : "") + skipped_[i];
    }
    return text + (skipped_.size() > 3 ? ", …)" : ")");
  }

  DataFormat format_;
  Log& log_;
  const SettingNames& names_;
  std::vector<std::string> skipped_;
};

}  // namespace

std::vector<SourceFile> find_source_files(const std::vector<std::string>& entries,
                                          DataFormat format, Log& log, const SettingNames& names) {
  Finder finder(format, log, names);
  for (const std::string& entry : entries) finder.add(entry);
  return std::move(finder.files);
}

}  // namespace tessera
