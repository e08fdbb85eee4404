// Content hashes for caches and checksums: XXH3 (libxxhash), fast and not cryptographic.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace tessera {

std::uint64_t hash64(std::string_view bytes, std::uint64_t seed = 0);

// XXH3-128 over a stream; the digest is 32 lower-case hexadecimal digits and the same on every
// machine.
class ContentHash {
 public:
  ContentHash();
  ~ContentHash();
  ContentHash(const ContentHash&) = delete;
  ContentHash& operator=(const ContentHash&) = delete;
  void update(std::span<const std::byte> bytes);
  void update(std::string_view text) { update(std::as_bytes(std::span(text.data(), text.size()))); }
  std::string digest() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::string content_hash(std::string_view bytes);

}  // namespace tessera
