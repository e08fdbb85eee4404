#include "data/prepared_folder.h"

#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "formats/token_file.h"

namespace tessera {
namespace {

using Json = nlohmann::ordered_json;

[[noreturn]] void not_whole(const std::string& why, const Path& where,
                            const PreparedFolder& folder) {
  throw Error(
      ErrorKind::kCorrupt, "the prepared data is not whole: " + why, where.string(),
      "Run `tessera prepare` with --out " + folder.train.parent_path().string() + " again.");
}

Json describe(const TokenFileFacts& facts) {
  return {{"tokens", facts.tokens},
          {"documents", facts.documents},
          {"text_bytes", facts.text_bytes},
          {"tokenizer", facts.tokenizer_hash},
          {"hash", facts.payload_hash}};
}

Json read_summary(const PreparedFolder& folder, FileSystem& files) {
  if (!files.exists(folder.summary)) return {};
  return Json::parse(files.read(folder.summary), nullptr, false);
}

}  // namespace

PreparedFolder::PreparedFolder(const Path& folder)
    : train(folder / "train.tok"),
      validation(folder / "validation.tok"),
      tokenizer(folder / "tokenizer"),
      summary(folder / "prepare.json") {}

bool is_prepared_folder(const Path& path) {
  const PreparedFolder folder(path);
  std::error_code code;
  return std::filesystem::is_regular_file(folder.train, code) ||
         std::filesystem::is_regular_file(folder.summary, code);
}

std::shared_ptr<const Tokenizer> check_prepared_folder(const PreparedFolder& folder,
                                                       FileSystem& files) {
  if (!files.exists(folder.summary)) {
    not_whole("there is no prepare.json", folder.summary, folder);
  }
  const Json summary = read_summary(folder, files);
  if (!summary.is_object()) not_whole("prepare.json is damaged", folder.summary, folder);
  for (const auto& [name, path] :
       {std::pair{"train", folder.train}, std::pair{"validation", folder.validation}}) {
    if (!files.exists(path)) not_whole("a file is missing", path, folder);
    if (summary.value(name, Json()) != describe(TokenFile(path).facts())) {
      not_whole("the token file is not the one that prepare.json describes", path, folder);
    }
  }
  std::shared_ptr<const Tokenizer> tokenizer;
  try {
    tokenizer = load_tokenizer(folder.tokenizer);
  } catch (const Error& error) {
    not_whole(error.reason(), folder.tokenizer, folder);
  }
  const Json described = summary.value("tokenizer", Json());
  if (!described.is_object() || described.value("hash", Json()) != tokenizer->hash()) {
    not_whole("the tokenizer is not the one that prepare.json describes", folder.tokenizer, folder);
  }
  return tokenizer;
}

std::string prepared_key(const PreparedFolder& folder, FileSystem& files) {
  const Json summary = read_summary(folder, files);
  if (!summary.is_object() || !summary.contains("key") || !summary["key"].is_string()) return {};
  return summary["key"];
}

void write_prepared_summary(const PreparedFolder& folder, const std::string& key,
                            const Tokenizer& tokenizer, FileSystem& files) {
  const Json json{{"key", key},
                  {"tokenizer",
                   {{"kind", tokenizer.kind()},
                    {"vocab_size", tokenizer.vocab_size()},
                    {"hash", tokenizer.hash()}}},
                  {"train", describe(TokenFile(folder.train).facts())},
                  {"validation", describe(TokenFile(folder.validation).facts())}};
  write_file_atomically(files, folder.summary, json.dump(2) + "\n");
}

void put_in_place(const PreparedFolder& staged, const PreparedFolder& folder, FileSystem& files) {
  files.rename(staged.train, folder.train);
  files.rename(staged.validation, folder.validation);
  if (files.exists(folder.tokenizer)) {  // no rename replaces a folder that is not empty
    files.rename(folder.tokenizer, staged.tokenizer.string() + ".old");
  }
  files.rename(staged.tokenizer, folder.tokenizer);
  files.sync_directory(folder.summary.parent_path());
  files.rename(staged.summary, folder.summary);
  files.sync_directory(folder.summary.parent_path());
}

}  // namespace tessera
