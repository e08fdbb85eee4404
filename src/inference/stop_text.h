// The text of one generation as it grows. Owns: stop strings, also those that arise across tokens.
// Not: tokens (generator.h), complete UTF-8 (tokenizer/utf8_stream.h). No torch.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

class StopText {
 public:
  // Error{kUsage} for an empty stop string.
  explicit StopText(std::vector<std::string> stops);

  // Appends bytes. True when a stop string is complete: text() then ends before it and nothing may
  // be appended any more. The stop string that ends first counts, of those with the same end the
  // longest: so the result does not depend on how the bytes were cut into tokens.
  bool append(std::string_view bytes);

  const std::string& text() const { return text_; }
  // The first bytes of text() that no stop string can take back; all of them after a match.
  std::size_t settled() const;

 private:
  std::vector<std::string> stops_;
  std::string text_;
  bool stopped_ = false;
};

}  // namespace tessera
