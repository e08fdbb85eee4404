#include "data/utf8_check.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace tessera {
namespace {

bool begins_character(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) != 0x80; }

// True where the 8 bytes are ASCII and none is NUL.
bool plain_ascii(const char* bytes) {
  std::uint64_t word = 0;
  std::memcpy(&word, bytes, 8);
  constexpr std::uint64_t kHigh = 0x8080808080808080, kOnes = 0x0101010101010101;
  return (word & kHigh) == 0 && ((word - kOnes) & kHigh) == 0;
}

}  // namespace

void Utf8Check::invalid(std::uint64_t offset) const {
  throw Error(ErrorKind::kData, "the text is not valid UTF-8",
              file_ + ", byte offset " + std::to_string(offset),
              "Convert it to UTF-8 (for example with iconv)" +
                  (byte_setting_.empty() ? "" : ", or set " + byte_setting_) + ".");
}

void Utf8Check::add(std::string_view block) {
  std::size_t i = 0;
  while (i < block.size()) {
    if (missing_ == 0 && i + 8 <= block.size() && plain_ascii(block.data() + i)) {
      i += 8;
      continue;
    }
    const auto byte = static_cast<unsigned char>(block[i]);
    if (byte == 0) {
      throw Error(ErrorKind::kData, "the file holds binary data (a NUL byte), not text",
                  file_ + ", byte offset " + std::to_string(offset_ + i),
                  "Give a text file; UTF-16 must be converted to UTF-8 first.");
    }
    if (any_bytes_) {
    } else if (missing_ > 0) {
      if (byte < low_ || byte > high_) invalid(begin_);
      --missing_;
      low_ = 0x80;
      high_ = 0xBF;
    } else if (byte >= 0x80) {
      if (byte < 0xC2 || byte > 0xF4) invalid(offset_ + i);
      begin_ = offset_ + i;
      missing_ = byte < 0xE0 ? 1 : byte < 0xF0 ? 2 : 3;
      low_ = byte == 0xE0 ? 0xA0 : byte == 0xF0 ? 0x90 : 0x80;
      high_ = byte == 0xED ? 0x9F : byte == 0xF4 ? 0x8F : 0xBF;
    }
    ++i;
  }
  offset_ += block.size();
}

void Utf8Check::finish() {
  if (missing_ > 0) invalid(begin_);
}

std::size_t skip_characters(std::string_view block, std::uint64_t& count) {
  std::size_t i = 0;
  for (; i < block.size(); ++i) {
    if (!begins_character(block[i])) continue;
    if (count == 0) return i;
    --count;
  }
  return i;
}

std::uint64_t count_characters(std::string_view block) {
  return static_cast<std::uint64_t>(std::count_if(block.begin(), block.end(), begins_character));
}

}  // namespace tessera
