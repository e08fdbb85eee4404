// Documents that a tokenizer is trained on. Owns: where a document that comes in parts may be cut.
// Not: the training (tokenizer/), which documents those are.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "data/documents.h"
#include "tokenizer/bpe_trainer.h"
#include "tokenizer/char_tokenizer.h"

namespace tessera {

// Both: Error{kData} for documents that come as token ids.
class CharSink final : public DocumentSink {
 public:
  void text(std::string_view part, bool last) override;
  void ids(std::span<const std::uint32_t> ids, std::string_view where) override;

  CharVocabulary vocabulary;
  std::uint64_t documents = 0;
};

// Words are counted as if each document came in one piece.
class BpeSink final : public DocumentSink {
 public:
  explicit BpeSink(BpeTrainer& trainer) : trainer_(trainer) {}
  void text(std::string_view part, bool last) override;
  void ids(std::span<const std::uint32_t> ids, std::string_view where) override;

 private:
  BpeTrainer& trainer_;
  std::string open_;
};

}  // namespace tessera
