// Documents to evaluate on, as token ids. Owns: reading and encoding them, the counts behind bits
// per byte and word perplexity. No torch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file_system.h"
#include "base/log.h"
#include "config/config.h"
#include "tokenizer/tokenizer.h"

namespace tessera {

// Files, folders and globs as data/source_files.h has them.
struct EvaluationSource {
  std::vector<Path> paths;
  DataFormat format = DataFormat::kAuto;
  std::string text_field = "text", text_column;
};

struct EvaluationText {
  std::vector<std::vector<TokenId>> documents;
  std::uint64_t bytes = 0;   // of the text
  std::uint64_t words = 0;   // as count_words()
  bool counts_known = true;  // false where some of it came as ids: no bytes, no words

  std::int64_t tokens() const;
};

// Words between ASCII white space, and one for each line: the count behind WikiText's published
// word perplexities, where the end of a line is a word. A last line without newline counts.
std::uint64_t count_words(std::string_view text);

// Plain text, JSON lines, TSV, CSV, each also compressed, and token files. A plain text is one
// document, encoded whole; special tokens in it are text. Error{kData} naming file and place; where
// no document has two tokens too.
EvaluationText read_evaluation_text(const EvaluationSource& source, const Tokenizer& tokenizer,
                                    Log& log);

// The documents as they are.
std::vector<std::string> read_plain_documents(const EvaluationSource& source, Log& log);

}  // namespace tessera
