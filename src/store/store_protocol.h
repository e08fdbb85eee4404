// The words of TCPStore's wire protocol, as PyTorch 2.13 speaks it. Owns: numbers of queries and
// answers, and how numbers and texts lie on the wire. Facts from torch's public header
// TCPStoreBackend.hpp and from what its clients send. Numbers are in the host's byte order, so both
// ends must have the same one (torch's rule).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tessera {

// The first byte of a request. The first request of a connection is kValidate with kStoreMagic.
enum class StoreQuery : std::uint8_t {
  kValidate = 0,
  kSet,
  kCompareSet,
  kGet,
  kAdd,
  kCheck,
  kWait,
  kGetNumKeys,
  kDeleteKey,
  kAppend,
  kMultiGet,
  kMultiSet,
  kCancelWait,
  kPing,
  kQueuePush,
  kQueuePop,
  kQueueLength,
  kListKeys,
  kBarrier,
};

inline constexpr std::uint32_t kStoreMagic = 0x3C85F7CE;
// torch puts this before every key of its user: the same keys are seen by both kinds of clients.
inline constexpr char kStoreKeyPrefix = '/';

// One byte each.
enum class StoreCheckAnswer : std::uint8_t { kReady = 0, kNotReady = 1 };
enum class StoreWaitAnswer : std::uint8_t { kStopWaiting = 0, kWaitCanceled = 1 };

template <typename Number>
void append_number(std::string& wire, Number number) {
  wire.append(reinterpret_cast<const char*>(&number), sizeof number);
}

// A text is its length (u64) and its bytes.
inline void append_text(std::string& wire, std::string_view text) {
  append_number<std::uint64_t>(wire, text.size());
  wire.append(text);
}

}  // namespace tessera
