#include "tokenizer/small_tokenizer_file.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "tokenizer/byte_tokenizer.h"
#include "tokenizer/char_tokenizer.h"

namespace tessera {
namespace {

using Json = nlohmann::ordered_json;

Error corrupt(const Path& file, const std::string& why) {
  return Error(ErrorKind::kCorrupt, "cannot read the tokenizer: " + why, file.string(),
               "The file is damaged: make the tokenizer again.");
}

}  // namespace

TokenizerFile write_small_tokenizer(std::string_view kind,
                                    std::optional<std::string_view> characters,
                                    std::optional<TokenId> end_of_text) {
  Json json = {{"kind", kind}};
  if (characters) json["characters"] = *characters;
  json["end_of_text"] = nullptr;
  if (end_of_text) json["end_of_text"] = *end_of_text;
  return {std::string(kSmallTokenizerFile), json.dump(2) + "\n"};
}

std::unique_ptr<Tokenizer> read_small_tokenizer(const Path& file) {
  const MappedFile mapped(file);
  const Json json = Json::parse(mapped.text(), nullptr, false);
  if (json.is_discarded()) throw corrupt(file, "broken JSON");
  if (!json.is_object() || !json.contains("kind") || !json["kind"].is_string()) {
    throw corrupt(file, "no field 'kind'");
  }
  const bool has_end = json.contains("end_of_text") && !json["end_of_text"].is_null();
  const EndOfText end_of_text = has_end ? EndOfText::kAdded : EndOfText::kNone;
  const auto kind = json["kind"].get<std::string>();
  std::unique_ptr<Tokenizer> tokenizer;
  if (kind == "byte") {
    tokenizer = make_byte_tokenizer(end_of_text);
  } else if (kind == "char") {
    if (!json.contains("characters") || !json["characters"].is_string()) {
      throw corrupt(file, "no field 'characters'");
    }
    try {
      tokenizer = make_char_tokenizer(json["characters"].get<std::string>(), end_of_text);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kCorrupt) throw;
      throw corrupt(file, error.reason());
    }
  } else {
    throw corrupt(file, "unknown kind '" + kind + "' (valid: byte, char)");
  }
  if (has_end && json["end_of_text"] != *tokenizer->end_of_text()) {
    throw corrupt(file, "end_of_text is not " + std::to_string(*tokenizer->end_of_text()) +
                            ", the id behind the last");
  }
  return tokenizer;
}

}  // namespace tessera
