// One request to the store, put together from bytes as they arrive. Owns: the layout of each kind
// of request and the limits on what a stranger may send. Not: what a request does (store_data.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "store/store_protocol.h"
#include "store/store_server.h"

namespace tessera {

struct StoreRequest {
  StoreQuery query = StoreQuery::kPing;
  std::vector<std::string> texts;  // keys and values in the order of the wire
  std::int64_t number = 0;         // magic, nonce, amount or world size
};

class StoreRequestReader {
 public:
  explicit StoreRequestReader(const StoreLimits& limits) : limits_(limits) {}

  // Takes bytes from the front of `input`. A request as soon as one is whole, else nothing: then
  // all of `input` is taken. Memory grows with the bytes that came, never with a length that was
  // only claimed. Error{kComm}: no such query, or more than the limits; the reader is of no use
  // then.
  std::optional<StoreRequest> read(std::string_view& input);

  bool at_start() const { return !begun_; }
  std::size_t held_bytes() const { return held_bytes_; }  // of the unfinished request

 private:
  void begin(char first);
  bool read_number(std::string_view& input, std::size_t width, std::uint64_t& number);
  bool read_text(std::string_view& input);
  void take(char field, std::uint64_t number);

  const StoreLimits limits_;
  bool begun_ = false, in_text_ = false;
  StoreRequest request_;
  std::string_view fields_;  // the layout, or of a counted request the group that repeats
  std::size_t at_ = 0;       // in fields_
  std::uint64_t groups_left_ = 1;
  std::uint64_t text_left_ = 0;
  char number_[8] = {};
  std::size_t number_size_ = 0;
  std::size_t held_bytes_ = 0;
};

}  // namespace tessera
