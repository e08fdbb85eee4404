// Text to token ids and back. Owns: the interface of every tokenizer, special tokens in text,
// encoding on several threads, loading and saving by folder. Not: BPE (bpe_tokenizer.h), its
// training (bpe_trainer.h), bytes and characters (byte_tokenizer.h, char_tokenizer.h), whole UTF-8
// for output (utf8_stream.h). No torch.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file_system.h"

namespace tessera {

using TokenId = std::int32_t;

inline constexpr std::string_view kEndOfText = "<|endoftext|>";

// What special tokens in a text mean. Text from outside is plain text, so that nobody can smuggle
// an end of text in.
enum class SpecialTokens {
  kAsText,  // "<|endoftext|>" is thirteen characters
  kParse,   // "<|endoftext|>" is its token; the longest one that starts leftmost wins
};

// A token that stands for itself and never arises from merging.
struct SpecialToken {
  std::string text;  // valid UTF-8, not empty
  TokenId id = 0;
  // A word that Hugging Face's tokenizer.json adds with "special": false. It is found in all text,
  // whatever the policy.
  bool always_parsed = false;
  bool operator==(const SpecialToken&) const = default;
};

// One step of byte-pair encoding: left and right beside each other become merged. Its rank is its
// index.
struct TokenMerge {
  TokenId left = 0, right = 0, merged = 0;
  bool operator==(const TokenMerge&) const = default;
};

// What every kind of tokenizer has.
struct TokenizerContents {
  std::vector<std::string> tokens = {};  // bytes by id; an empty one is a gap
  std::vector<SpecialToken> special_tokens = {};
  std::optional<TokenId> end_of_text = {};
};

struct TokenizerFile {
  std::string name, content;
};

// Immutable once made; every function may be called from several threads at once.
// Decoding the ids of any text gives that text back byte for byte, invalid UTF-8 included (the char
// tokenizer instead refuses what is not in its vocabulary).
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  virtual std::string_view kind() const = 0;  // "bpe", "byte" or "char"

  // The largest id + 1. Ids below it that no token has (gaps in a loaded vocabulary) exist;
  // is_token tells.
  std::int64_t vocab_size() const { return static_cast<std::int64_t>(offsets_.size()) - 1; }
  bool is_token(TokenId id) const;

  // The ids of `text`. threads > 1 shares a long text among that many; the ids are the same for any
  // number.
  std::vector<TokenId> encode(std::string_view text, SpecialTokens special = SpecialTokens::kAsText,
                              int threads = 1) const;
  // As encode, on this thread, to the end of `ids`.
  void append(std::string_view text, SpecialTokens special, std::vector<TokenId>& ids) const;

  // The first position >= target at which `text` may be cut: encoding the two sides separately
  // gives the ids of the whole. text.size(): there is none. What follows `text` changes nothing,
  // except where a special token begins right at its end.
  std::size_t split_point(std::string_view text, std::size_t target, SpecialTokens special) const;

  // The bytes that `id` stands for, valid as long as this object. Error{kData} if it is no token.
  std::string_view token_bytes(TokenId id) const;
  std::string decode(std::span<const TokenId> ids) const;

  // Special tokens in the order of their ids.
  std::span<const SpecialToken> special_tokens() const { return special_tokens_; }
  // The token between documents, if there is one. It is one of special_tokens().
  std::optional<TokenId> end_of_text() const { return end_of_text_; }
  // Merges in the order of their ranks; empty if the tokenizer merges nothing.
  virtual std::span<const TokenMerge> merges() const { return {}; }

  // 32 hexadecimal digits which tell tokenizers apart that give other ids or other text; the same
  // on every machine and for every layout of the files.
  const std::string& hash() const { return hash_; }

  // What save() writes, in the order it is written.
  virtual std::vector<TokenizerFile> files() const = 0;
  // Writes a folder that load_tokenizer reads. Creates it if need be; a tokenizer that was there is
  // replaced, files of other layouts are removed. Error{kIo}.
  void save(FileSystem& files, const Path& directory) const;

 protected:
  // Error{kCorrupt} if a special token is empty, not valid UTF-8, given twice, or does not match
  // `tokens`.
  explicit Tokenizer(TokenizerContents contents);

  // Part of the construction: `text` describes what else than tokens the result depends on.
  void finish_hash(std::string_view text);

  // The ids of plain text. `offset` is where it lies in the caller's text, for messages.
  virtual void append_text(std::string_view text, std::size_t offset,
                           std::vector<TokenId>& ids) const = 0;
  // The first position >= target (else text.size()) where encoding the two sides separately gives
  // the ids of the whole.
  virtual std::size_t safe_split(std::string_view text, std::size_t target) const = 0;

 private:
  struct Segment;
  std::vector<Segment> find_segments(std::string_view text, SpecialTokens special) const;
  bool parses_anything(SpecialTokens special) const;

  std::string bytes_;                   // all tokens one after the other
  std::vector<std::uint32_t> offsets_;  // token id is bytes_[offsets_[id], offsets_[id + 1])
  std::vector<SpecialToken> special_tokens_;
  std::vector<std::uint32_t> longest_first_;  // indices into special_tokens_
  std::optional<TokenId> end_of_text_;
  std::string hash_;
};

// Reads the tokenizer in a folder: tokenizer.json (Hugging Face), or vocab.json + merges.txt, or
// encoder.json + vocab.bpe (the first of these that is there), or tessera_tokenizer.json (byte and
// char tokenizers). Errors name the file and the reason: kIo if a file is missing or cannot be
// read; kCorrupt if one is broken, if two files contradict each other, or if it describes something
// else than GPT-2's byte-level BPE.
std::unique_ptr<Tokenizer> load_tokenizer(const Path& directory);

}  // namespace tessera
