#include "store/store_request.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace tessera {
namespace {

[[noreturn]] void refuse(const std::string& why) {
  throw Error(ErrorKind::kComm, "a request to the store is refused: " + why);
}

// k: key, v: value, i: 64 bits, u: 32 bits, *: a count of the groups that follow.
std::string_view layout(StoreQuery query) {
  switch (query) {
    case StoreQuery::kValidate:
    case StoreQuery::kPing: return "u";
    case StoreQuery::kSet:
    case StoreQuery::kAppend:
    case StoreQuery::kQueuePush: return "kv";
    case StoreQuery::kCompareSet: return "kvv";
    case StoreQuery::kGet:
    case StoreQuery::kDeleteKey:
    case StoreQuery::kQueuePop:
    case StoreQuery::kQueueLength: return "k";
    case StoreQuery::kAdd:
    case StoreQuery::kBarrier: return "ki";
    case StoreQuery::kCheck:
    case StoreQuery::kWait:
    case StoreQuery::kMultiGet: return "*k";
    case StoreQuery::kMultiSet: return "*kv";
    case StoreQuery::kGetNumKeys:
    case StoreQuery::kCancelWait:
    case StoreQuery::kListKeys: return "";
  }
  refuse("unknown query " + std::to_string(static_cast<int>(query)));
}

}  // namespace

void StoreRequestReader::begin(char first) {
  request_ = StoreRequest();
  request_.query = static_cast<StoreQuery>(static_cast<unsigned char>(first));
  fields_ = layout(request_.query);
  at_ = 0;
  groups_left_ = 1;
  held_bytes_ = 0;
  begun_ = true;
}

bool StoreRequestReader::read_number(std::string_view& input, std::size_t width,
                                     std::uint64_t& number) {
  const std::size_t count = std::min(width - number_size_, input.size());
  std::memcpy(number_ + number_size_, input.data(), count);
  input.remove_prefix(count);
  number_size_ += count;
  if (number_size_ < width) return false;
  number_size_ = 0;
  if (width == sizeof(std::uint32_t)) {
    std::uint32_t narrow = 0;
    std::memcpy(&narrow, number_, sizeof narrow);
    number = narrow;
  } else {
    std::memcpy(&number, number_, sizeof number);
  }
  return true;
}

bool StoreRequestReader::read_text(std::string_view& input) {
  const std::size_t count = std::min<std::uint64_t>(text_left_, input.size());
  request_.texts.back().append(input.substr(0, count));
  input.remove_prefix(count);
  held_bytes_ += count;
  text_left_ -= count;
  return text_left_ == 0;
}

void StoreRequestReader::take(char field, std::uint64_t number) {
  if (field == '*') {
    if (number > limits_.keys_of_a_request)
      refuse(std::to_string(number) + " keys, and " + std::to_string(limits_.keys_of_a_request) +
             " are allowed");
    groups_left_ = number;
    fields_ = number == 0 ? std::string_view() : fields_.substr(1);
    at_ = 0;
    return;
  }
  if (field == 'k' || field == 'v') {
    const std::size_t most = field == 'k' ? limits_.key_bytes : limits_.value_bytes;
    if (number > most)
      refuse("a " + std::string(field == 'k' ? "key" : "value") + " of " + std::to_string(number) +
             " bytes, and " + std::to_string(most) + " are allowed");
    request_.texts.emplace_back();
    held_bytes_ += sizeof(std::string);
    text_left_ = number;
    in_text_ = true;
    return;
  }
  request_.number = static_cast<std::int64_t>(number);
  ++at_;
}

std::optional<StoreRequest> StoreRequestReader::read(std::string_view& input) {
  if (!begun_) {
    if (input.empty()) return std::nullopt;
    begin(input.front());
    input.remove_prefix(1);
  }
  while (true) {
    if (in_text_) {
      if (!read_text(input)) return std::nullopt;
      in_text_ = false;
      ++at_;
    }
    if (at_ == fields_.size()) {
      if (groups_left_ <= 1) break;
      --groups_left_;
      at_ = 0;
    }
    const char field = fields_[at_];
    std::uint64_t number = 0;
    const std::size_t width = field == 'u' ? sizeof(std::uint32_t) : sizeof(std::uint64_t);
    if (!read_number(input, width, number)) return std::nullopt;
    take(field, number);
  }
  begun_ = false;
  held_bytes_ = 0;
  return std::exchange(request_, StoreRequest());
}

}  // namespace tessera
