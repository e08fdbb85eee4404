// The bytes of a text file, decompressed. Owns: plain files, gzip, zstd. Not: what the bytes mean
// (documents.h).
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "base/file_system.h"

namespace tessera {

class ByteReader {
 public:
  virtual ~ByteReader() = default;
  // The next bytes, valid until the next call; false at the end. A plain file comes in large blocks
  // of its mapping, a compressed one in blocks of at most a MiB. Error{kData} with path and offset
  // where an archive is broken or cut off.
  virtual bool next(std::string_view& block) = 0;
  virtual std::uint64_t file_bytes_read() const = 0;  // of the file as it lies on disk
  virtual std::uint64_t file_bytes() const = 0;
};

// By the first bytes of the file; a name that ends in .gz or .zst must keep its promise. Several
// gzip members or zstd frames in a row are one text. Error{kData} where the file cannot be opened.
std::unique_ptr<ByteReader> open_text_bytes(const Path& path);

}  // namespace tessera
