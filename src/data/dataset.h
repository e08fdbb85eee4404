// The tokens of one split as one long sequence. Owns: access to them, mapped or in memory. Not: how
// they are cut into blocks (sampler.h), nor where they come from (prepare.h).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/file_system.h"

namespace tessera {

class TokenFile;

// Immutable; may be read from several threads at once. A mapped file costs no memory of its own
// beyond the pages that the system keeps.
class TokenDataset {
 public:
  // Tokens in memory. text_bytes: the bytes of text they were made from, 0 when not known.
  explicit TokenDataset(std::vector<std::uint32_t> tokens, std::uint64_t text_bytes = 0);
  explicit TokenDataset(TokenFile file, std::string name = {});
  // Maps a token file as `tessera prepare` writes them. Checks head, trailer and size, not the
  // checksum of the whole: verify(). `name`: what name() gives in place of the path, where a person
  // knows the data by another. Error{kIo, kCorrupt}.
  explicit TokenDataset(const Path& token_file, std::string name = {});
  ~TokenDataset();
  TokenDataset(const TokenDataset&);  // shares the tokens
  TokenDataset& operator=(const TokenDataset&);
  TokenDataset(TokenDataset&&) noexcept;
  TokenDataset& operator=(TokenDataset&&) noexcept;

  // The tokens [start, start + count) of this, sharing its memory. text_bytes: of theirs.
  TokenDataset slice(std::int64_t start, std::int64_t count, std::uint64_t text_bytes) const;

  std::int64_t size() const;  // tokens
  // Ids [start, start + count) into `out`; the range must lie inside (Error{kInternal}).
  void read(std::int64_t start, std::int64_t count, std::int64_t* out) const;
  std::int64_t token(std::int64_t index) const;

  std::uint64_t text_bytes() const;           // of the text behind all tokens, without separators
  std::uint64_t vocab_size() const;           // every id is below it; 0 when not known
  std::uint64_t documents() const;            // of the whole file, for a slice too
  const std::string& content_hash() const;    // of the text; empty for tokens in memory
  const std::string& tokenizer_hash() const;  // empty for tokens in memory
  const std::string& name() const;            // for messages
  // Reads a mapped file in full and checks all of it. Error{kCorrupt}.
  void verify() const;

 private:
  struct Content;
  void check_range(std::int64_t start, std::int64_t count) const;

  std::shared_ptr<const Content> content_;
  std::int64_t start_ = 0, size_ = 0;
  std::uint64_t text_bytes_ = 0, documents_ = 1;
};

}  // namespace tessera
