// Valid UTF-8 out of the bytes of tokens, which may end inside a character. Owns: the bytes not yet
// complete, and the replacement of what is invalid.
#pragma once

#include <string>
#include <string_view>

namespace tessera {

// What is not valid UTF-8 comes out as U+FFFD, one for each maximal part of a sequence (Unicode's
// recommended practice, as Python's errors="replace" does), so that the output is always valid and
// does not depend on how it was fed.
class Utf8Stream {
 public:
  // The text that is certain after these bytes too: all but a sequence that further bytes may
  // complete (3 bytes at most).
  std::string feed(std::string_view bytes);
  // What is left at the end: empty, or U+FFFD for an incomplete character. The stream is as new
  // afterwards.
  std::string flush();

 private:
  std::string waiting_;
};

// All of `bytes` as valid UTF-8, as the stream gives it.
std::string replace_invalid_utf8(std::string_view bytes);

}  // namespace tessera
