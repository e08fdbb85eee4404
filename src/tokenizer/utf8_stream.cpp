#include "tokenizer/utf8_stream.h"

#include <cstddef>

#include "tokenizer/unicode_classes.h"

namespace tessera {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

// How many bytes from `begin` on could be the start of a sequence that is valid but not complete
// there: at least 1 for a byte that can lead one. Unicode's table 3-7.
std::size_t maximal_part(std::string_view bytes) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(bytes[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0xC2 || lead > 0xF4) return 0;
  const std::size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  std::size_t part = 1;
  while (part < length && part < bytes.size()) {
    unsigned char low = 0x80, high = 0xBF;
    if (part == 1) {
      if (lead == 0xE0) low = 0xA0;
      if (lead == 0xED) high = 0x9F;
      if (lead == 0xF0) low = 0x90;
      if (lead == 0xF4) high = 0x8F;
    }
    if (byte(part) < low || byte(part) > high) break;
    ++part;
  }
  return part;
}

}  // namespace

std::string Utf8Stream::feed(std::string_view bytes) {
  waiting_ += bytes;
  const std::string_view text = waiting_;
  std::string out;
  out.reserve(text.size());
  std::size_t at = 0;
  while (at < text.size()) {
    const CodePoint point = decode_code_point(text.data() + at, text.data() + text.size());
    if (point.valid) {
      out += text.substr(at, point.length);
      at += point.length;
      continue;
    }
    const std::size_t part = maximal_part(text.substr(at));
    if (part > 0 && at + part == text.size()) break;
    out += kReplacement;
    at += part > 0 ? part : 1;
  }
  waiting_.erase(0, at);
  return out;
}

std::string Utf8Stream::flush() {
  const bool incomplete = !waiting_.empty();
  waiting_.clear();
  return std::string(incomplete ? kReplacement : std::string_view());
}

std::string replace_invalid_utf8(std::string_view bytes) {
  Utf8Stream stream;
  std::string text = stream.feed(bytes);
  return text + stream.flush();
}

}  // namespace tessera
