// Documents out of text files. Owns: plain text, JSON lines, TSV, CSV; UTF-8 checks. Not:
// compression (byte_reader.h), tokens.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "data/source_files.h"

namespace tessera {

// Takes documents one after the other. Empty ones are not sent.
class DocumentSink {
 public:
  virtual ~DocumentSink() = default;
  // A part of a document, `last` its end. Parts follow each other without anything in between and
  // are cut between characters.
  virtual void text(std::string_view part, bool last) = 0;
  // A whole document that comes as token ids; `where` is file:line for messages.
  virtual void ids(std::span<const std::uint32_t> ids, std::string_view where) = 0;
};

struct DocumentOptions {
  std::string text_field = "text";
  std::string text_column;
  bool any_bytes = false;  // plain text need not be UTF-8
  SettingNames names;
};

// Sends the documents of `file`: a plain text is one, and each row of JSON lines, TSV, CSV.
//   JSON lines: an object with the field text_field (a text), or else with `input_ids` (ids, of
//     which `attention_mask` 0 leaves some out); blank lines are skipped.
//   TSV: a header line; split at tabs only, no quotes. CSV: RFC 4180, a header line.
// `read` is told how many bytes of the file are done. Error{kData} naming file and line, or file
// and byte offset.
void read_documents(const SourceFile& file, const DocumentOptions& options, DocumentSink& sink,
                    const std::function<void(std::uint64_t)>& read = {});

}  // namespace tessera
