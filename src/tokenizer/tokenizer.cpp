#include "tokenizer/tokenizer.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <exception>
#include <functional>
#include <limits>
#include <system_error>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "tokenizer/unicode_classes.h"

namespace tessera {
namespace {

// Texts below this size are not worth a thread.
constexpr std::size_t kChunkBytes = 64 * 1024;

std::string little_endian(std::uint64_t value) {
  std::string bytes;
  for (int shift = 0; shift < 64; shift += 8) bytes += static_cast<char>(value >> shift & 255);
  return bytes;
}

Error broken_special(const SpecialToken& token, std::string_view why) {
  return Error(ErrorKind::kCorrupt, "special token '" + token.text + "' with id " +
                                        std::to_string(token.id) + " " + std::string(why));
}

}  // namespace

// A stretch of text, or one special token.
struct Tokenizer::Segment {
  std::size_t begin = 0, end = 0;
  const SpecialToken* special = nullptr;
};

Tokenizer::Tokenizer(TokenizerContents contents)
    : special_tokens_(std::move(contents.special_tokens)), end_of_text_(contents.end_of_text) {
  std::size_t total = 0;
  for (const std::string& token : contents.tokens) total += token.size();
  if (total > std::numeric_limits<std::uint32_t>::max()) {
    throw Error(ErrorKind::kResource, "a vocabulary of more than 4 GiB");
  }
  bytes_.reserve(total);
  offsets_.reserve(contents.tokens.size() + 1);
  offsets_.push_back(0);
  for (const std::string& token : contents.tokens) {
    bytes_ += token;
    offsets_.push_back(static_cast<std::uint32_t>(bytes_.size()));
  }
  std::ranges::sort(special_tokens_, {}, &SpecialToken::id);
  for (std::size_t i = 0; i < special_tokens_.size(); ++i) {
    const SpecialToken& token = special_tokens_[i];
    if (token.text.empty()) throw broken_special(token, "is empty");
    if (find_invalid_utf8(token.text) != std::string::npos) {
      throw broken_special(token, "is not valid UTF-8");
    }
    if (!is_token(token.id) || token_bytes(token.id) != token.text) {
      throw broken_special(token, "is another token in the vocabulary");
    }
    if (i > 0 && special_tokens_[i - 1].id == token.id)
      throw broken_special(token, "is given twice");
    longest_first_.push_back(static_cast<std::uint32_t>(i));
  }
  std::ranges::stable_sort(longest_first_, std::greater<>{},
                           [&](std::uint32_t i) { return special_tokens_[i].text.size(); });
}

void Tokenizer::finish_hash(std::string_view text) {
  ContentHash hash;
  const auto add = [&](std::string_view part) {
    hash.update(little_endian(part.size()));
    hash.update(part);
  };
  add(text);
  std::string lengths;
  lengths.reserve(offsets_.size() * 8);
  for (const std::uint32_t offset : offsets_) lengths += little_endian(offset);
  add(lengths);
  add(bytes_);
  for (const SpecialToken& token : special_tokens_) {
    add(little_endian(static_cast<std::uint64_t>(token.id)) + (token.always_parsed ? "a" : "s"));
  }
  add(end_of_text_ ? little_endian(static_cast<std::uint64_t>(*end_of_text_)) : "none");
  hash_ = hash.digest();
}

bool Tokenizer::is_token(TokenId id) const {
  return id >= 0 && id < vocab_size() &&
         offsets_[static_cast<std::size_t>(id)] < offsets_[static_cast<std::size_t>(id) + 1];
}

std::string_view Tokenizer::token_bytes(TokenId id) const {
  if (!is_token(id)) {
    throw Error(ErrorKind::kData,
                "cannot decode token " + std::to_string(id) + ": the vocabulary has ids 0 to " +
                    std::to_string(vocab_size() - 1) +
                    (id >= 0 && id < vocab_size() ? ", and this one is a gap" : ""),
                {}, "Use the tokenizer that made the ids.");
  }
  const std::size_t begin = offsets_[static_cast<std::size_t>(id)];
  return std::string_view(bytes_).substr(begin, offsets_[static_cast<std::size_t>(id) + 1] - begin);
}

std::string Tokenizer::decode(std::span<const TokenId> ids) const {
  std::string text;
  text.reserve(ids.size() * 4);
  for (const TokenId id : ids) text += token_bytes(id);
  return text;
}

bool Tokenizer::parses_anything(SpecialTokens special) const {
  if (special == SpecialTokens::kParse) return !special_tokens_.empty();
  return std::ranges::any_of(special_tokens_, &SpecialToken::always_parsed);
}

std::vector<Tokenizer::Segment> Tokenizer::find_segments(std::string_view text,
                                                         SpecialTokens special) const {
  std::vector<Segment> segments;
  std::size_t begin = 0;
  if (parses_anything(special)) {
    std::array<bool, 256> starts{};
    std::vector<const SpecialToken*> candidates;
    for (const std::uint32_t i : longest_first_) {
      const SpecialToken& token = special_tokens_[i];
      if (special == SpecialTokens::kAsText && !token.always_parsed) continue;
      candidates.push_back(&token);
      starts[static_cast<unsigned char>(token.text[0])] = true;
    }
    for (std::size_t at = 0; at < text.size();) {
      const SpecialToken* found = nullptr;
      if (starts[static_cast<unsigned char>(text[at])]) {
        const auto match = std::ranges::find_if(candidates, [&](const SpecialToken* token) {
          return text.substr(at).starts_with(token->text);
        });
        if (match != candidates.end()) found = *match;
      }
      if (found == nullptr) {
        ++at;
        continue;
      }
      if (begin < at) segments.push_back({begin, at, nullptr});
      begin = at + found->text.size();
      segments.push_back({at, begin, found});
      at = begin;
    }
  }
  if (begin < text.size()) segments.push_back({begin, text.size(), nullptr});
  return segments;
}

void Tokenizer::append(std::string_view text, SpecialTokens special,
                       std::vector<TokenId>& ids) const {
  if (!parses_anything(special)) {
    append_text(text, 0, ids);
    return;
  }
  for (const Segment& segment : find_segments(text, special)) {
    if (segment.special != nullptr) {
      ids.push_back(segment.special->id);
    } else {
      append_text(text.substr(segment.begin, segment.end - segment.begin), segment.begin, ids);
    }
  }
}

std::size_t Tokenizer::split_point(std::string_view text, std::size_t target,
                                   SpecialTokens special) const {
  if (target >= text.size()) return text.size();
  if (!parses_anything(special)) return safe_split(text, target);
  for (const Segment& segment : find_segments(text, special)) {
    if (segment.end <= target) continue;
    if (segment.begin >= target) return segment.begin;
    if (segment.special != nullptr) return segment.end;
    const std::string_view plain = text.substr(segment.begin, segment.end - segment.begin);
    return segment.begin + safe_split(plain, target - segment.begin);
  }
  return text.size();
}

namespace {

// Runs work(0), …, work(count - 1) on up to `threads` threads. The failure of the lowest index is
// thrown: the one that a single thread would have met.
template <class Work>
void run_on_threads(std::size_t count, int threads, const Work& work) {
  std::atomic<std::size_t> next{0};
  std::atomic<bool> failed{false};
  std::vector<std::exception_ptr> failures(count);
  const auto loop = [&] {
    for (std::size_t i = next++; i < count && !failed; i = next++) {
      try {
        work(i);
      } catch (...) {
        failures[i] = std::current_exception();
        failed = true;
      }
    }
  };
  std::vector<std::thread> helpers;
  const std::size_t wanted = std::min<std::size_t>(static_cast<std::size_t>(threads), count);
  try {
    while (helpers.size() + 1 < wanted) helpers.emplace_back(loop);
  } catch (const std::system_error&) {
    // The system gives no further thread: those that run share the work.
  }
  loop();
  for (std::thread& helper : helpers) helper.join();
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
}

}  // namespace

std::vector<TokenId> Tokenizer::encode(std::string_view text, SpecialTokens special,
                                       int threads) const {
  std::vector<TokenId> ids;
  if (threads <= 1 || text.size() < 2 * kChunkBytes) {
    ids.reserve(text.size() / 4 + 16);
    append(text, special, ids);
    return ids;
  }
  const std::size_t chunk_bytes =
      std::max(kChunkBytes, text.size() / (static_cast<std::size_t>(threads) * 8));
  std::vector<Segment> parts;
  for (Segment segment : find_segments(text, special)) {
    while (segment.special == nullptr && segment.end - segment.begin > chunk_bytes) {
      const std::string_view rest = text.substr(segment.begin, segment.end - segment.begin);
      const std::size_t split = segment.begin + safe_split(rest, chunk_bytes);
      if (split >= segment.end) break;
      parts.push_back({segment.begin, split, nullptr});
      segment.begin = split;
    }
    parts.push_back(segment);
  }
  std::vector<std::size_t> chunks{0};  // where each chunk starts in parts
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].end - parts[chunks.back()].begin >= chunk_bytes) chunks.push_back(i + 1);
  }
  if (chunks.back() < parts.size()) chunks.push_back(parts.size());
  std::vector<std::vector<TokenId>> results(chunks.size() - 1);
  run_on_threads(results.size(), threads, [&](std::size_t chunk) {
    std::vector<TokenId>& result = results[chunk];
    result.reserve((parts[chunks[chunk + 1] - 1].end - parts[chunks[chunk]].begin) / 4 + 16);
    for (std::size_t i = chunks[chunk]; i < chunks[chunk + 1]; ++i) {
      const Segment& part = parts[i];
      if (part.special != nullptr) {
        result.push_back(part.special->id);
      } else {
        append_text(text.substr(part.begin, part.end - part.begin), part.begin, result);
      }
    }
  });
  std::size_t total = 0;
  for (const auto& result : results) total += result.size();
  ids.reserve(total);
  for (const auto& result : results) ids.insert(ids.end(), result.begin(), result.end());
  return ids;
}

void Tokenizer::save(FileSystem& file_system, const Path& directory) const {
  file_system.create_directories(directory);
  for (const TokenizerFile& file : files()) {
    write_file_atomically(file_system, directory / file.name, file.content);
  }
  // What another tokenizer left there would stand beside this one, or win over it.
  for (const char* name : {"tokenizer.json", "vocab.json", "merges.txt", "encoder.json",
                           "vocab.bpe", "tessera_tokenizer.json"}) {
    const bool ours =
        std::ranges::any_of(files(), [&](const TokenizerFile& file) { return file.name == name; });
    if (!ours && file_system.exists(directory / name)) file_system.remove_all(directory / name);
  }
}

}  // namespace tessera
