#include "formats/token_file.h"

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <iterator>
#include <random>
#include <utility>

#include "base/error.h"

namespace tessera {
namespace {

static_assert(std::endian::native == std::endian::little, "token files are mapped as they are");

constexpr std::string_view kMagic = "TESSTOK\n", kEndMagic = "TESSEND\n";
constexpr std::size_t kHeadBytes = 16, kHashChars = 32;

struct Trailer {
  std::uint64_t tokens, documents, text_bytes, vocab_size, token_bytes, reserved[5];
  char content_hash[kHashChars], tokenizer_hash[kHashChars], payload_hash[kHashChars];
  char magic[8];
  std::uint64_t checksum;  // XXH3-64 of the head and of the trailer before this field
};
static_assert(sizeof(Trailer) == 192);

std::uint64_t padding(std::uint64_t bytes) { return (8 - bytes % 8) % 8; }

void put_hash(char (&field)[kHashChars], const std::string& hash) {
  if (hash.size() > kHashChars) {
    throw Error(ErrorKind::kInternal,
                "a hash for a token file is longer than 32 characters: " + hash);
  }
  std::memset(field, 0, kHashChars);
  std::memcpy(field, hash.data(), hash.size());
}

std::string get_hash(const char (&field)[kHashChars]) {
  return std::string(field, std::find(field, field + kHashChars, '\0'));
}

std::string head_of(std::uint32_t token_bytes) {
  std::string head(kMagic);
  head.append(reinterpret_cast<const char*>(&kTokenFileVersion), 4);
  head.append(reinterpret_cast<const char*>(&token_bytes), 4);
  return head;
}

std::uint64_t checksum_of(const Trailer& trailer, std::string_view head) {
  const std::string_view fields(reinterpret_cast<const char*>(&trailer),
                                sizeof trailer - sizeof trailer.checksum);
  return hash64(fields, hash64(head));
}

[[noreturn]] void corrupt(const std::string& why, const Path& path) {
  throw Error(ErrorKind::kCorrupt, "cannot use the token file: " + why, path.string(),
              "Make it again with `tessera prepare`.");
}

// The size that the counts ask for, or nothing where they cannot be true.
bool size_matches(const Trailer& trailer, std::uint64_t file_bytes) {
  const std::uint64_t limit = file_bytes;  // keeps the sums below from overflowing
  if (trailer.tokens > limit || trailer.documents > limit) return false;
  const std::uint64_t token_bytes = trailer.tokens * trailer.token_bytes;
  return kHeadBytes + token_bytes + padding(token_bytes) + trailer.documents * 8 +
             sizeof(Trailer) ==
         file_bytes;
}

}  // namespace

TokenFile::TokenFile(const Path& path) : map_(path) {
  const std::string_view text = map_.text();
  if (text.substr(0, kMagic.size()) != kMagic) {
    corrupt(text.empty() ? "the file is empty" : "it does not begin as one", path);
  }
  std::uint32_t version = 0, token_bytes = 0;
  if (text.size() >= kHeadBytes) {
    std::memcpy(&version, text.data() + 8, 4);
    std::memcpy(&token_bytes, text.data() + 12, 4);
    if (version != kTokenFileVersion) {
      corrupt("it has version " + std::to_string(version) + ", this program reads version " +
                  std::to_string(kTokenFileVersion),
              path);
    }
  }
  if (text.size() < kHeadBytes + sizeof(Trailer)) corrupt("it is cut off", path);
  Trailer trailer{};
  std::memcpy(&trailer, text.data() + text.size() - sizeof trailer, sizeof trailer);
  if (std::string_view(trailer.magic, sizeof trailer.magic) != kEndMagic) {
    corrupt("it is cut off (no end mark in its last " + std::to_string(sizeof trailer) + " of " +
                std::to_string(text.size()) + " bytes)",
            path);
  }
  if (trailer.checksum != checksum_of(trailer, text.substr(0, kHeadBytes)) ||
      trailer.token_bytes != token_bytes || (token_bytes != 2 && token_bytes != 4)) {
    corrupt("its head or trailer was changed (checksum)", path);
  }
  if (!size_matches(trailer, text.size())) {
    corrupt("it has " + std::to_string(text.size()) + " bytes, which does not fit its " +
                std::to_string(trailer.tokens) + " tokens and " +
                std::to_string(trailer.documents) + " documents",
            path);
  }
  facts_ = {token_bytes,
            trailer.tokens,
            trailer.documents,
            trailer.text_bytes,
            trailer.vocab_size,
            get_hash(trailer.content_hash),
            get_hash(trailer.tokenizer_hash),
            get_hash(trailer.payload_hash)};
  tokens_ = map_.bytes().data() + kHeadBytes;
  const std::uint64_t payload = facts_.tokens * token_bytes;
  starts_ = tokens_ + payload + padding(payload);
}

std::uint32_t TokenFile::token(std::uint64_t index) const {
  std::int64_t id = 0;
  read(index, 1, &id);
  return static_cast<std::uint32_t>(id);
}

void TokenFile::read(std::uint64_t start, std::uint64_t count, std::int64_t* out) const {
  if (facts_.token_bytes == 2) {
    const auto* ids = reinterpret_cast<const std::uint16_t*>(tokens_) + start;
    std::copy(ids, ids + count, out);
  } else {
    const auto* ids = reinterpret_cast<const std::uint32_t*>(tokens_) + start;
    std::copy(ids, ids + count, out);
  }
}

std::uint64_t TokenFile::document_start(std::uint64_t document) const {
  std::uint64_t start = 0;
  std::memcpy(&start, starts_ + document * 8, 8);
  return start;
}

void TokenFile::verify() const {
  const std::string_view text = map_.text();
  if (content_hash(text.substr(0, text.size() - sizeof(Trailer))) != facts_.payload_hash) {
    corrupt("its content was changed since it was written (checksum)", path());
  }
  std::int64_t ids[1024];
  for (std::uint64_t i = 0; i < facts_.tokens; i += std::size(ids)) {
    const std::uint64_t count = std::min<std::uint64_t>(std::size(ids), facts_.tokens - i);
    read(i, count, ids);
    const std::int64_t largest = *std::max_element(ids, ids + count);
    if (static_cast<std::uint64_t>(largest) >= facts_.vocab_size) {
      corrupt("it holds token " + std::to_string(largest) + ", the vocabulary has " +
                  std::to_string(facts_.vocab_size),
              path());
    }
  }
  for (std::uint64_t d = 0; d < facts_.documents; ++d) {
    if (document_start(d) > facts_.tokens || (d > 0 && document_start(d) < document_start(d - 1))) {
      corrupt("the start of document " + std::to_string(d) + " is out of order", path());
    }
  }
}

TokenFileWriter::TokenFileWriter(FileSystem& files, Path path, std::uint64_t vocab_size)
    : files_(files), path_(std::move(path)), temporary_(path_) {
  // Random, as several machines may share the folder and two threads may share the process.
  std::random_device random;
  temporary_ += ".tmp." + std::to_string(::getpid()) + "." + std::to_string(random());
  facts_.token_bytes = vocab_size <= 1 << 16 ? 2 : 4;
  facts_.vocab_size = vocab_size;
  file_ = files_.create(temporary_);
  const std::string head = head_of(facts_.token_bytes);
  put(std::as_bytes(std::span(head.data(), head.size())));
}

TokenFileWriter::~TokenFileWriter() {
  if (finished_) return;
  file_.reset();
  try {
    files_.remove_all(temporary_);
  } catch (const Error&) {
    // Whatever ended the writing early is what gets reported.
  }
}

void TokenFileWriter::put(std::span<const std::byte> bytes) {
  hash_.update(bytes);
  file_->write(bytes);
}

void TokenFileWriter::begin_document() { starts_.push_back(facts_.tokens); }

void TokenFileWriter::append(std::span<const std::uint32_t> ids) {
  for (const std::uint32_t id : ids) {
    if (id >= facts_.vocab_size) {
      throw Error(
          ErrorKind::kInternal,
          "token id " + std::to_string(id) + " is not below " + std::to_string(facts_.vocab_size),
          path_.string());
    }
  }
  if (facts_.token_bytes == 2) {
    narrow_.resize(ids.size());
    std::transform(ids.begin(), ids.end(), narrow_.begin(),
                   [](std::uint32_t id) { return static_cast<std::uint16_t>(id); });
    put(std::as_bytes(std::span(narrow_)));
  } else {
    put(std::as_bytes(ids));
  }
  facts_.tokens += ids.size();
}

TokenFileFacts TokenFileWriter::finish(std::uint64_t text_bytes, const std::string& content_hash,
                                       const std::string& tokenizer_hash) {
  constexpr std::byte kZeros[8]{};
  put(std::span(kZeros).first(padding(facts_.tokens * facts_.token_bytes)));
  put(std::as_bytes(std::span(starts_)));
  facts_.documents = starts_.size();
  facts_.text_bytes = text_bytes;
  facts_.content_hash = content_hash;
  facts_.tokenizer_hash = tokenizer_hash;
  facts_.payload_hash = hash_.digest();
  Trailer trailer{};
  trailer.tokens = facts_.tokens;
  trailer.documents = facts_.documents;
  trailer.text_bytes = facts_.text_bytes;
  trailer.vocab_size = facts_.vocab_size;
  trailer.token_bytes = facts_.token_bytes;
  put_hash(trailer.content_hash, content_hash);
  put_hash(trailer.tokenizer_hash, tokenizer_hash);
  put_hash(trailer.payload_hash, facts_.payload_hash);
  std::memcpy(trailer.magic, kEndMagic.data(), kEndMagic.size());
  trailer.checksum = checksum_of(trailer, head_of(facts_.token_bytes));
  file_->write(std::as_bytes(std::span(&trailer, 1)));
  file_->sync();
  file_->close();
  files_.rename(temporary_, path_);
  finished_ = true;
  files_.sync_directory(path_.has_parent_path() ? path_.parent_path() : Path("."));
  return facts_;
}

}  // namespace tessera
