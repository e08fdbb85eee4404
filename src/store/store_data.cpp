#include "store/store_data.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <utility>

#include "base/error.h"

namespace tessera {
namespace {

// What an entry costs beyond its bytes: many small ones must not pass for nothing.
constexpr std::size_t kEntryBytes = 128;
constexpr std::size_t kAll = std::numeric_limits<std::size_t>::max();

std::int64_t number_of(const std::string& key, const std::string& value) {
  std::int64_t number = 0;
  const char* end = value.data() + value.size();
  const auto [rest, error] = std::from_chars(value.data(), end, number);
  if (error != std::errc() || rest != end)
    throw Error(ErrorKind::kComm, "a client adds to the key '" + key + "', which holds no number");
  return number;
}

template <typename Answer>
void append_byte(std::string& wire, Answer answer) {
  wire.push_back(static_cast<char>(answer));
}

}  // namespace

void StoreData::handle(Client client, StoreRequest&& request, std::string& answer) {
  std::vector<std::string>& texts = request.texts;
  switch (request.query) {
    case StoreQuery::kPing:
      append_number(answer, static_cast<std::uint32_t>(request.number));
      break;
    case StoreQuery::kSet: put(texts[0], std::move(texts[1])); break;
    case StoreQuery::kMultiSet:
      for (std::size_t i = 0; i < texts.size(); i += 2) put(texts[i], std::move(texts[i + 1]));
      break;
    case StoreQuery::kAppend: append(texts[0], texts[1]); break;
    case StoreQuery::kCompareSet: compare_set(texts, answer); break;
    case StoreQuery::kGet:
    case StoreQuery::kMultiGet: get_many(texts, answer); break;
    case StoreQuery::kAdd: {
      const std::int64_t total = sum(texts[0], request.number);
      put(texts[0], std::to_string(total));
      append_number(answer, total);
      break;
    }
    case StoreQuery::kCheck:
      append_byte(answer, std::all_of(texts.begin(), texts.end(),
                                      [this](const std::string& key) { return has(key); })
                              ? StoreCheckAnswer::kReady
                              : StoreCheckAnswer::kNotReady);
      break;
    case StoreQuery::kWait: wait(client, texts, answer); break;
    case StoreQuery::kCancelWait:
      forget(client);
      append_byte(answer, StoreWaitAnswer::kWaitCanceled);
      break;
    case StoreQuery::kGetNumKeys:
      append_number(answer, static_cast<std::int64_t>(values_.size()));
      break;
    case StoreQuery::kDeleteKey: erase(texts[0], answer); break;
    case StoreQuery::kQueuePush: push(texts[0], std::move(texts[1])); break;
    case StoreQuery::kQueuePop: pop(texts[0], answer); break;
    case StoreQuery::kQueueLength: {
      const auto found = queues_.find(texts[0]);
      append_number<std::int64_t>(
          answer, found == queues_.end() ? 0 : static_cast<std::int64_t>(found->second.size()));
      break;
    }
    case StoreQuery::kListKeys: list_keys(answer); break;
    case StoreQuery::kBarrier: barrier(client, texts[0], request.number, answer); break;
    case StoreQuery::kValidate:
      throw Error(ErrorKind::kComm, "a client of the store introduces itself a second time");
  }
}

std::vector<StoreData::Client> StoreData::take_woken() { return std::exchange(woken_, {}); }

bool StoreData::has(const std::string& key) const {
  return values_.contains(key) || queues_.contains(key);
}

void StoreData::assign(const std::string& key, std::string value) {
  const auto [entry, is_new] = values_.try_emplace(key);
  if (is_new) held_bytes_ += key.size() + kEntryBytes;
  held_bytes_ += value.size();
  held_bytes_ -= entry->second.size();
  entry->second = std::move(value);
}

void StoreData::put(const std::string& key, std::string value) {
  assign(key, std::move(value));
  wake(key, kAll);
}

void StoreData::append(const std::string& key, const std::string& more) {
  const auto found = values_.find(key);
  if (found == values_.end()) return put(key, more);
  if (found->second.size() + more.size() > limits_.value_bytes)
    throw Error(ErrorKind::kComm, "a client makes the value of '" + key + "' too long");
  found->second += more;
  held_bytes_ += more.size();
  wake(key, kAll);
}

void StoreData::erase(const std::string& key, std::string& answer) {
  const auto found = values_.find(key);
  append_number<std::int64_t>(answer, found == values_.end() ? 0 : 1);
  if (found == values_.end()) return;
  held_bytes_ -= key.size() + kEntryBytes + found->second.size();
  values_.erase(found);
}

void StoreData::compare_set(std::vector<std::string>& texts, std::string& answer) {
  const std::string &key = texts[0], &expected = texts[1];
  const auto found = values_.find(key);
  // With no value there, torch's server answers an expectation with that expectation.
  if (found == values_.end() && !expected.empty()) {
    append_text(answer, expected);
    return;
  }
  if (found == values_.end() || found->second == expected) put(key, std::move(texts[2]));
  append_text(answer, values_.at(key));
}

std::int64_t StoreData::sum(const std::string& key, std::int64_t amount) const {
  const auto found = values_.find(key);
  std::int64_t total = 0;
  if (__builtin_add_overflow(found == values_.end() ? 0 : number_of(key, found->second), amount,
                             &total))
    throw Error(ErrorKind::kComm, "a client adds beyond 64 bits to the key '" + key + "'");
  return total;
}

void StoreData::get_many(const std::vector<std::string>& keys, std::string& answer) {
  std::size_t bytes = 0;
  for (const std::string& key : keys) {
    const auto found = values_.find(key);
    bytes += sizeof(std::uint64_t) + (found == values_.end() ? 0 : found->second.size());
  }
  if (bytes > limits_.answer_bytes)
    throw Error(ErrorKind::kComm, "a client asks for too many bytes at once");
  for (const std::string& key : keys) {
    const auto found = values_.find(key);
    append_text(answer, found == values_.end() ? std::string_view() : found->second);
  }
}

void StoreData::list_keys(std::string& answer) {
  std::size_t bytes = 0;
  for (const auto& [key, value] : values_) bytes += sizeof(std::uint64_t) + key.size();
  if (bytes > limits_.answer_bytes)
    throw Error(ErrorKind::kComm, "a client asks for a list of too many keys");
  append_number(answer, static_cast<std::int64_t>(values_.size()));
  for (const auto& [key, value] : values_) append_text(answer, key);
}

void StoreData::wait(Client client, const std::vector<std::string>& keys, std::string& answer) {
  forget(client);
  for (const std::string& key : keys)
    if (!has(key)) await(client, key);
  if (!awaited_.contains(client)) append_byte(answer, StoreWaitAnswer::kStopWaiting);
}

void StoreData::barrier(Client client, const std::string& key, std::int64_t world_size,
                        std::string& answer) {
  forget(client);
  const std::int64_t arrived = sum(key, 1);
  assign(key, std::to_string(arrived));  // wakes nobody: they wait for the count, not for the key
  if (arrived >= world_size) {
    wake(key, kAll);
    append_byte(answer, StoreWaitAnswer::kStopWaiting);
  } else {
    await(client, key);
  }
}

void StoreData::push(const std::string& key, std::string value) {
  std::deque<std::string>& queue = queues_[key];
  held_bytes_ += (queue.empty() ? key.size() + kEntryBytes : 0) + value.size() + kEntryBytes;
  queue.push_back(std::move(value));
  wake(key, 1);
}

void StoreData::pop(const std::string& key, std::string& answer) {
  const auto found = queues_.find(key);
  append_number<std::int64_t>(
      answer, found == queues_.end() ? 0 : static_cast<std::int64_t>(found->second.size()));
  if (found == queues_.end()) return;
  append_text(answer, found->second.front());
  held_bytes_ -= found->second.front().size() + kEntryBytes;
  found->second.pop_front();
  if (!found->second.empty()) return;
  held_bytes_ -= key.size() + kEntryBytes;
  queues_.erase(found);
}

void StoreData::await(Client client, const std::string& key) {
  if (!awaited_[client].insert(key).second) return;
  waiters_[key].push_back(client);
  held_bytes_ += 2 * (key.size() + kEntryBytes);
}

void StoreData::wake(const std::string& key, std::size_t most) {
  const auto found = waiters_.find(key);
  if (found == waiters_.end()) return;
  std::deque<Client>& waiting = found->second;
  while (!waiting.empty() && most > 0) {
    const Client client = waiting.front();
    waiting.pop_front();
    held_bytes_ -= 2 * (key.size() + kEntryBytes);
    const auto awaited = awaited_.find(client);
    awaited->second.erase(key);
    if (!awaited->second.empty()) continue;
    awaited_.erase(awaited);
    woken_.push_back(client);
    --most;
  }
  if (waiting.empty()) waiters_.erase(found);
}

void StoreData::forget(Client client) {
  const auto awaited = awaited_.find(client);
  if (awaited == awaited_.end()) return;
  for (const std::string& key : awaited->second) {
    const auto found = waiters_.find(key);
    std::erase(found->second, client);
    held_bytes_ -= 2 * (key.size() + kEntryBytes);
    if (found->second.empty()) waiters_.erase(found);
  }
  awaited_.erase(awaited);
}

}  // namespace tessera
