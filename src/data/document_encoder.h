// Documents to tokens in a token file. Owns: separators, threads, batching. Not: which documents
// (documents.h, document_split.h).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/hash.h"
#include "data/documents.h"
#include "formats/token_file.h"
#include "tokenizer/tokenizer.h"

namespace tessera {

struct EncodeOptions {
  std::string separator = "end-of-text";  // none | end-of-text | any text, encoded by itself
  SpecialTokens special = SpecialTokens::kAsText;
  int threads = 1;
};

// The ids are the same for any number of threads and any cutting into parts. Memory: the documents
// of a batch (16 MiB) and their ids; a longer document is encoded piece by piece where the
// tokenizer can be cut without another result.
class DocumentEncoder final : public DocumentSink {
 public:
  DocumentEncoder(std::shared_ptr<const Tokenizer> tokenizer, EncodeOptions options,
                  TokenFileWriter& writer);

  void text(std::string_view part, bool last) override;
  // Error{kData} for an id that the tokenizer does not have.
  void ids(std::span<const std::uint32_t> ids, std::string_view where) override;
  // Encodes what waits; names the file's facts. After it nothing more may come.
  TokenFileFacts finish();

 private:
  void begin_document();
  void encode_waiting();
  void encode_piece(std::string_view text);
  void encode_batch();
  void append(std::span<const TokenId> ids);

  std::shared_ptr<const Tokenizer> tokenizer_;
  EncodeOptions options_;
  TokenFileWriter& writer_;
  std::vector<TokenId> separator_;
  std::vector<std::string> batch_;  // whole documents that wait
  std::size_t batch_bytes_ = 0;
  std::string open_;  // the document whose end has not come, from what is not encoded on
  bool in_pieces_ = false;
  std::size_t next_cut_;  // length of open_ from which on it is worth to look for a cut
  ContentHash hash_;
  std::uint64_t text_bytes_ = 0, documents_ = 0;
};

}  // namespace tessera
