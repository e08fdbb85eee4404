// Token files: the ids of a text, ready to be mapped into memory. Owns: the layout (docs/data.md),
// its checks, writing in one pass. Not: where the ids come from (data/).
//
//   head     16 bytes: "TESSTOK\n", version u32, bytes of a token u32 (2 or 4)
//   tokens   u16 or u32 each, then zeros up to a multiple of 8
//   starts   u64 each: the index of the first token of every document
//   trailer  192 bytes: counts and hashes, see TokenFileFacts; last its own checksum
// Everything is little-endian. The counts stand at the end so that a file is written in one pass.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/file_system.h"
#include "base/hash.h"

namespace tessera {

inline constexpr std::uint32_t kTokenFileVersion = 1;

struct TokenFileFacts {
  std::uint32_t token_bytes = 2;  // 2 where every id of the vocabulary fits, else 4
  std::uint64_t tokens = 0;
  std::uint64_t documents = 0;
  std::uint64_t text_bytes = 0;  // of the text behind the tokens, decompressed, without separators
  std::uint64_t vocab_size = 0;  // every id is below it
  std::string content_hash;      // of that text; at most 32 characters
  std::string tokenizer_hash;    // at most 32 characters
  std::string payload_hash;      // XXH3-128 of everything before the trailer, 32 hexadecimal digits
};

// A mapped token file; immutable, for any number of threads.
class TokenFile {
 public:
  // Error{kIo} where it cannot be opened; Error{kCorrupt} for anything else than a whole token file
  // of this version: head, trailer and size are checked, which costs no reading of the tokens.
  explicit TokenFile(const Path& path);

  const TokenFileFacts& facts() const { return facts_; }
  const Path& path() const { return map_.path(); }
  std::uint64_t size() const { return facts_.tokens; }
  std::uint32_t token(std::uint64_t index) const;  // index < size()
  // Ids [start, start + count); the caller has checked the range.
  void read(std::uint64_t start, std::uint64_t count, std::int64_t* out) const;
  std::uint64_t document_start(std::uint64_t document) const;

  // Reads everything: the checksum, ids below vocab_size, starts in order. Error{kCorrupt}.
  void verify() const;

 private:
  MappedFile map_;
  TokenFileFacts facts_;
  const std::byte* tokens_ = nullptr;
  const std::byte* starts_ = nullptr;
};

// Writes a token file under a temporary name beside `path`; finish() makes it durable and gives it
// its name, so that nobody sees a part of it, and of several processes that write the same path the
// last one wins. Destroying without finish() removes the temporary file.
class TokenFileWriter {
 public:
  TokenFileWriter(FileSystem& files, Path path, std::uint64_t vocab_size);
  ~TokenFileWriter();
  TokenFileWriter(const TokenFileWriter&) = delete;
  TokenFileWriter& operator=(const TokenFileWriter&) = delete;

  void begin_document();
  // Error{kInternal} for an id that is not below vocab_size.
  void append(std::span<const std::uint32_t> ids);
  std::uint64_t tokens() const { return facts_.tokens; }
  TokenFileFacts finish(std::uint64_t text_bytes, const std::string& content_hash,
                        const std::string& tokenizer_hash);

 private:
  void put(std::span<const std::byte> bytes);

  FileSystem& files_;
  Path path_, temporary_;
  std::unique_ptr<WritableFile> file_;
  TokenFileFacts facts_;
  ContentHash hash_;
  std::vector<std::uint64_t> starts_;
  std::vector<std::uint16_t> narrow_;
  bool finished_ = false;
};

}  // namespace tessera
