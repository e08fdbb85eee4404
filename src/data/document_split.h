// Cutting a text that comes as documents: how much there is, and which part goes where. Owns:
// lengths in characters. Not: tokens.
#pragma once

#include <cstdint>
#include <vector>

#include "data/documents.h"

namespace tessera {

// Length: a character (code point) of a text counts 1, and so does a token of a document that comes
// as ids.
class DocumentCounter final : public DocumentSink {
 public:
  void text(std::string_view part, bool last) override;
  void ids(std::span<const std::uint32_t> ids, std::string_view where) override;

  std::uint64_t length = 0;
  std::uint64_t documents = 0;
};

// Sends the first `length` of all that comes to the first section, what follows to the next, and so
// on; what is beyond the last is dropped. A document that lies across a border becomes two.
class DocumentSplit final : public DocumentSink {
 public:
  struct Section {
    std::uint64_t length = 0;
    DocumentSink* sink = nullptr;  // nullptr: dropped
  };
  explicit DocumentSplit(std::vector<Section> sections) : sections_(std::move(sections)) {}
  void text(std::string_view part, bool last) override;
  void ids(std::span<const std::uint32_t> ids, std::string_view where) override;

 private:
  DocumentSink* sink() const { return at_ < sections_.size() ? sections_[at_].sink : nullptr; }

  std::vector<Section> sections_;
  std::size_t at_ = 0;
  bool open_ = false;  // the section has the beginning of a document
};

}  // namespace tessera
