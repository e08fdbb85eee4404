// What is kept of earlier work on data. Owns: the folder's place and layout, hashes of source files
// that need not be read again. Not: the work itself (prepare.h).
//
//   tokens/KEY/{train.tok,validation.tok}   tokenizers/KEY/…   hashes/NAME
// Keys are hashes of everything that the content depends on, so an entry never becomes wrong, only
// unused; anything in the folder may be deleted at any time. Entries appear by rename: processes
// that make the same one at once do double work and no harm.
#pragma once

#include <optional>
#include <string>

#include "base/file_system.h"

namespace tessera {

// data.cache_dir where it is set, else $TESSERA_CACHE, else $XDG_CACHE_HOME/tessera, else
// ~/.cache/tessera. Error{kConfig} where nothing tells a place.
Path data_cache_folder(const std::string& cache_dir);

// The hash of a file's bytes as they lie on disk. A large file's hash is remembered with its size,
// times and inode, and taken from there while all of these are the same; not where the file was
// changed less than two seconds before it was hashed, as a later change might leave no trace.
class FileHashes {
 public:
  FileHashes(FileSystem& files, const Path& cache_folder);
  // Error{kData} where the file cannot be read.
  std::string hash(const Path& path);
  std::size_t remembered() const { return remembered_; }  // calls that read no file

 private:
  FileSystem& files_;
  Path folder_;
  std::size_t remembered_ = 0;
};

}  // namespace tessera
