#include <array>
#include <memory>
#include <string>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "tokenizer/bpe_files.h"
#include "tokenizer/small_tokenizer_file.h"
#include "tokenizer/tokenizer.h"

namespace tessera {
namespace {

struct Layout {
  const char* vocabulary;
  const char* merges;
};
constexpr std::array<Layout, 2> kLayouts{
    {{"vocab.json", "merges.txt"}, {"encoder.json", "vocab.bpe"}}};

Error missing(const Path& directory, const std::string& why) {
  return Error(
      ErrorKind::kIo, "cannot load a tokenizer: " + why, directory.string(),
      "A tokenizer is a folder with tokenizer.json, or vocab.json and merges.txt, or encoder.json "
      "and vocab.bpe, or tessera_tokenizer.json.");
}

Error ambiguous(const Path& directory, const std::string& files) {
  return Error(ErrorKind::kCorrupt, "cannot load a tokenizer: the folder holds two, " + files,
               directory.string(), "Leave the one that is meant.");
}

}  // namespace

std::unique_ptr<Tokenizer> load_tokenizer(const Path& directory) {
  const auto exists = [&](std::string_view name) {
    std::error_code ignored;
    return std::filesystem::exists(directory / name, ignored);
  };
  std::error_code error;
  if (!std::filesystem::exists(directory, error)) {
    throw missing(directory, error ? error.message() : "there is no such folder");
  }
  if (!std::filesystem::is_directory(directory, error)) throw missing(directory, "not a folder");

  const bool small = exists(kSmallTokenizerFile);
  std::unique_ptr<Tokenizer> found;
  std::string found_name;
  if (exists("tokenizer.json")) {
    if (small) throw ambiguous(directory, "tokenizer.json and " + std::string(kSmallTokenizerFile));
    return load_bpe_tokenizer_json(directory / "tokenizer.json");
  }
  for (const Layout& layout : kLayouts) {
    if (!exists(layout.vocabulary) || !exists(layout.merges)) continue;
    auto tokenizer = load_bpe_vocabulary(directory / layout.vocabulary, directory / layout.merges);
    const std::string name = std::string(layout.vocabulary) + " with " + layout.merges;
    if (found && found->hash() != tokenizer->hash()) {
      throw ambiguous(directory, found_name + " and " + name + ", which differ");
    }
    if (!found) found = std::move(tokenizer), found_name = name;
  }
  if (small) {
    if (found) throw ambiguous(directory, found_name + " and " + std::string(kSmallTokenizerFile));
    return read_small_tokenizer(directory / kSmallTokenizerFile);
  }
  if (found) return found;
  for (const Layout& layout : kLayouts) {
    for (const auto& [here, other] : {std::pair(layout.vocabulary, layout.merges),
                                      std::pair(layout.merges, layout.vocabulary)}) {
      if (exists(here)) {
        throw missing(directory, std::string(here) + " is there but " + other + " is missing");
      }
    }
  }
  throw missing(directory, "no tokenizer's files are there");
}

}  // namespace tessera
