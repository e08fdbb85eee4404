#include "data/dataset.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/error.h"
#include "formats/token_file.h"

namespace tessera {

struct TokenDataset::Content {
  std::optional<TokenFile> file;
  std::vector<std::uint32_t> tokens;
  std::string content_hash, tokenizer_hash, name = "tokens in memory";
};

TokenDataset::TokenDataset(std::vector<std::uint32_t> tokens, std::uint64_t text_bytes)
    : size_(static_cast<std::int64_t>(tokens.size())), text_bytes_(text_bytes) {
  auto content = std::make_shared<Content>();
  content->tokens = std::move(tokens);
  content_ = std::move(content);
}

TokenDataset::TokenDataset(TokenFile file, std::string name) {
  auto content = std::make_shared<Content>();
  const TokenFileFacts& facts = file.facts();
  size_ = static_cast<std::int64_t>(facts.tokens);
  text_bytes_ = facts.text_bytes;
  documents_ = facts.documents;
  content->content_hash = facts.content_hash;
  content->tokenizer_hash = facts.tokenizer_hash;
  content->name = name.empty() ? file.path().string() : std::move(name);
  content->file.emplace(std::move(file));
  content_ = std::move(content);
}

TokenDataset::TokenDataset(const Path& token_file, std::string name)
    : TokenDataset(TokenFile(token_file), std::move(name)) {}
TokenDataset::~TokenDataset() = default;
TokenDataset::TokenDataset(const TokenDataset&) = default;
TokenDataset& TokenDataset::operator=(const TokenDataset&) = default;
TokenDataset::TokenDataset(TokenDataset&&) noexcept = default;
TokenDataset& TokenDataset::operator=(TokenDataset&&) noexcept = default;

TokenDataset TokenDataset::slice(std::int64_t start, std::int64_t count,
                                 std::uint64_t text_bytes) const {
  check_range(start, count);
  TokenDataset part(*this);
  part.start_ += start;
  part.size_ = count;
  part.text_bytes_ = text_bytes;
  return part;
}

void TokenDataset::check_range(std::int64_t start, std::int64_t count) const {
  if (start >= 0 && count >= 0 && start <= size_ && count <= size_ - start) return;
  throw Error(ErrorKind::kInternal,
              "tokens [" + std::to_string(start) + ", +" + std::to_string(count) +
                  ") are outside the " + std::to_string(size_) + " of the data",
              name());
}

void TokenDataset::read(std::int64_t start, std::int64_t count, std::int64_t* out) const {
  check_range(start, count);
  start += start_;
  if (content_->file) {
    content_->file->read(static_cast<std::uint64_t>(start), static_cast<std::uint64_t>(count), out);
  } else {
    std::copy_n(content_->tokens.begin() + start, count, out);
  }
}

std::int64_t TokenDataset::token(std::int64_t index) const {
  std::int64_t id = 0;
  read(index, 1, &id);
  return id;
}

void TokenDataset::verify() const {
  if (content_->file) content_->file->verify();
}

std::uint64_t TokenDataset::vocab_size() const {
  return content_->file ? content_->file->facts().vocab_size : 0;
}
std::int64_t TokenDataset::size() const { return size_; }
std::uint64_t TokenDataset::text_bytes() const { return text_bytes_; }
std::uint64_t TokenDataset::documents() const { return documents_; }
const std::string& TokenDataset::content_hash() const { return content_->content_hash; }
const std::string& TokenDataset::tokenizer_hash() const { return content_->tokenizer_hash; }
const std::string& TokenDataset::name() const { return content_->name; }

}  // namespace tessera
