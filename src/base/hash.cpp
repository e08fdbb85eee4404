#include "base/hash.h"

#include <xxhash.h>

namespace tessera {

struct ContentHash::State {
  XXH3_state_t* state = XXH3_createState();
};

std::uint64_t hash64(std::string_view bytes, std::uint64_t seed) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

ContentHash::ContentHash() : state_(std::make_unique<State>()) {
  XXH3_128bits_reset(state_->state);
}

ContentHash::~ContentHash() { XXH3_freeState(state_->state); }

void ContentHash::update(std::span<const std::byte> bytes) {
  XXH3_128bits_update(state_->state, bytes.data(), bytes.size());
}

std::string ContentHash::digest() const {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(state_->state));
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const unsigned char byte : canonical.digest) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

std::string content_hash(std::string_view bytes) {
  ContentHash hash;
  hash.update(bytes);
  return hash.digest();
}

}  // namespace tessera
