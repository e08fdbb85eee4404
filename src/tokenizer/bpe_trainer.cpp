#include "tokenizer/bpe_trainer.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <exception>
#include <limits>
#include <queue>
#include <system_error>
#include <thread>
#include <unordered_set>
#include <utility>

#include "base/error.h"
#include "tokenizer/byte_alphabet.h"
#include "tokenizer/pair_map.h"
#include "tokenizer/split_pattern.h"
#include "tokenizer/unicode_classes.h"

namespace tessera {
namespace {

constexpr std::uint32_t kNowhere = std::numeric_limits<std::uint32_t>::max();
constexpr std::size_t kBytesForThread = 256 * 1024;

// Special tokens as they are spelled in vocab.json, where no other token may be spelled so.
std::unordered_set<std::string> reserved_bytes(const std::vector<std::string>& special_tokens) {
  std::unordered_set<std::string> reserved;
  std::string bytes;
  for (const std::string& text : special_tokens) {
    if (from_byte_alphabet(text, bytes)) reserved.insert(bytes);
  }
  return reserved;
}

// The state of training: all distinct words as one array of linked tokens, and for each pair of
// neighbours its count and where it was seen. A place is checked when it is used, since merges
// elsewhere may have taken its tokens.
class MergeSearch {
 public:
  MergeSearch(std::size_t target, std::int64_t min_count, std::unordered_set<std::string> reserved)
      : target_(target), min_count_(min_count), reserved_(std::move(reserved)) {
    for (const unsigned char byte : byte_alphabet_order()) {
      byte_ids_[byte] = static_cast<TokenId>(tokens_.size());
      tokens_.emplace_back(1, static_cast<char>(byte));
      ids_.emplace(tokens_.back(), byte_ids_[byte]);
    }
  }

  void add_word(std::string_view word, std::int64_t count) {
    if (symbols_.size() + word.size() >= kNowhere) {
      throw Error(ErrorKind::kResource,
                  "cannot train a tokenizer: more than 4 GiB of distinct words", {},
                  "Train on a part of the text.");
    }
    const auto begin = static_cast<std::uint32_t>(symbols_.size());
    const auto word_index = static_cast<std::uint32_t>(counts_.size());
    counts_.push_back(count);
    const auto length = static_cast<std::uint32_t>(word.size());
    for (std::uint32_t i = 0; i < length; ++i) {
      symbols_.push_back({.token = byte_ids_[static_cast<unsigned char>(word[i])],
                          .previous = i == 0 ? kNowhere : begin + i - 1,
                          .next = i + 1 == length ? kNowhere : begin + i + 1,
                          .word = word_index});
    }
    for (std::uint32_t i = 0; i + 1 < length; ++i) gain(begin + i, count);
  }

  void run() {
    queue_gains();
    while (tokens_.size() < target_ && !queue_.empty()) {
      const Candidate best = queue_.top();
      queue_.pop();
      Pair& pair = pairs_[best.pair];
      if (pair.count != best.count) {  // it has become rarer since
        if (pair.count >= min_count_) queue_.push({pair.count, pair.left, pair.right, best.pair});
        continue;
      }
      const std::string bytes = tokens_[static_cast<std::size_t>(pair.left)] +
                                tokens_[static_cast<std::size_t>(pair.right)];
      if (reserved_.contains(bytes)) continue;
      const auto [found, is_new] = ids_.try_emplace(bytes, static_cast<TokenId>(tokens_.size()));
      if (is_new) tokens_.push_back(bytes);
      merges_.push_back({.left = pair.left, .right = pair.right, .merged = found->second});
      merge_everywhere(best.pair, found->second);
      queue_gains();
    }
  }

  std::vector<std::string> take_tokens() { return std::move(tokens_); }
  std::vector<TokenMerge> take_merges() { return std::move(merges_); }

 private:
  struct Symbol {
    TokenId token;
    std::uint32_t previous, next, word;
  };
  struct Pair {
    TokenId left, right;
    std::int64_t count = 0;
    bool gained = false;  // in gained_
    std::vector<std::uint32_t> places = {};
  };
  struct Candidate {
    std::int64_t count;
    TokenId left, right;
    std::uint32_t pair;
    bool operator<(const Candidate& other) const {
      if (count != other.count) return count < other.count;
      return std::pair(left, right) > std::pair(other.left, other.right);
    }
  };

  // The pair that starts at `place` occurs `count` times more.
  void gain(std::uint32_t place, std::int64_t count) {
    const TokenId left = symbols_[place].token;
    const TokenId right = symbols_[symbols_[place].next].token;
    const auto fresh = static_cast<std::uint32_t>(pairs_.size());
    const std::uint32_t index = pair_index_.insert(left, right, fresh);
    if (index == fresh) pairs_.push_back({.left = left, .right = right});
    Pair& pair = pairs_[index];
    pair.count += count;
    pair.places.push_back(place);
    if (!pair.gained) gained_.push_back(index);
    pair.gained = true;
  }

  void lose(TokenId left, TokenId right, std::int64_t count) {
    pairs_[pair_index_.find(left, right)].count -= count;
  }

  void queue_gains() {
    for (const std::uint32_t index : gained_) {
      Pair& pair = pairs_[index];
      pair.gained = false;
      if (pair.count >= min_count_) queue_.push({pair.count, pair.left, pair.right, index});
    }
    gained_.clear();
  }

  void merge_everywhere(std::uint32_t index, TokenId merged) {
    const TokenId left = pairs_[index].left, right = pairs_[index].right;
    // From the left in each word, so that of "aaa" the first two are merged.
    std::vector<std::uint32_t> places = std::move(pairs_[index].places);
    if (!std::ranges::is_sorted(places)) std::ranges::sort(places);
    for (const std::uint32_t place : places) {
      Symbol& symbol = symbols_[place];
      if (symbol.token != left || symbol.next == kNowhere) continue;
      Symbol& taken = symbols_[symbol.next];
      if (taken.token != right) continue;
      const std::int64_t count = counts_[symbol.word];
      if (symbol.previous != kNowhere) lose(symbols_[symbol.previous].token, left, count);
      if (taken.next != kNowhere) lose(right, symbols_[taken.next].token, count);
      symbol.token = merged;
      symbol.next = taken.next;
      taken.token = -1;
      if (symbol.next != kNowhere) symbols_[symbol.next].previous = place;
      if (symbol.previous != kNowhere) gain(symbol.previous, count);
      if (symbol.next != kNowhere) gain(place, count);
    }
    pairs_[index].count = 0;
  }

  std::size_t target_;
  std::int64_t min_count_;
  std::unordered_set<std::string> reserved_;
  std::array<TokenId, 256> byte_ids_{};
  std::vector<std::string> tokens_;
  std::unordered_map<std::string, TokenId> ids_;
  std::vector<TokenMerge> merges_;
  std::vector<Symbol> symbols_;
  std::vector<std::int64_t> counts_;  // of each word
  PairMap pair_index_;
  std::vector<Pair> pairs_;
  std::vector<std::uint32_t> gained_;
  std::priority_queue<Candidate> queue_;
};

using Counts = std::unordered_map<std::string_view, std::int64_t>;

void count_words(std::string_view text, Counts& counts) {
  const char* const end = text.data() + text.size();
  for (const char* begin = text.data(); begin < end;) {
    const char* const behind = end_of_piece(begin, end);
    ++counts[std::string_view(begin, static_cast<std::size_t>(behind - begin))];
    begin = behind;
  }
}

std::vector<std::string_view> divide(std::string_view text, std::size_t parts) {
  std::vector<std::string_view> result;
  for (std::size_t part = parts; part > 1 && !text.empty(); --part) {
    const std::size_t split = safe_piece_boundary(text, text.size() / part);
    result.push_back(text.substr(0, split));
    text.remove_prefix(split);
  }
  if (!text.empty()) result.push_back(text);
  return result;
}

Error bad_special(const std::string& text, std::string_view why) {
  return Error(ErrorKind::kConfig, "special token '" + text + "' " + std::string(why), {},
               "Give another one, such as '<|name|>'.");
}

}  // namespace

BpeTrainer::BpeTrainer(BpeTrainingOptions options) : options_(std::move(options)) {
  std::vector<std::string>& special = options_.special_tokens;
  for (const std::string& text : special) {
    std::string bytes;
    if (text.empty()) throw bad_special(text, "is empty");
    if (find_invalid_utf8(text) != std::string::npos) throw bad_special(text, "is not valid UTF-8");
    if (text == kEndOfText) throw bad_special(text, "is part of every vocabulary already");
    if (std::ranges::count(special, text) > 1) throw bad_special(text, "is given twice");
    if (from_byte_alphabet(text, bytes) && bytes.size() == 1) {
      throw bad_special(text, "is spelled like a byte's token");
    }
  }
  special.emplace_back(kEndOfText);
  const auto least = static_cast<std::int64_t>(256 + special.size());
  constexpr std::int64_t kMost = std::int64_t{1} << 24;
  if (options_.vocab_size < least || options_.vocab_size > kMost) {
    throw Error(ErrorKind::kConfig,
                "a vocabulary of " + std::to_string(options_.vocab_size) +
                    (options_.vocab_size < least
                         ? " is too small: 256 bytes and " + std::to_string(special.size()) +
                               " special token(s) need " + std::to_string(least)
                         : " is too large: " + std::to_string(kMost) + " is the most"),
                {}, "Choose a size of at least " + std::to_string(least) + ".");
  }
}

void BpeTrainer::add(std::string_view text) {
  const std::size_t most = std::max<std::size_t>(1, text.size() / kBytesForThread);
  const std::size_t wanted =
      std::min<std::size_t>(static_cast<std::size_t>(std::max(1, options_.threads)), most);
  const std::vector<std::string_view> parts = divide(text, wanted);
  std::vector<Counts> counts(parts.size());
  std::vector<std::exception_ptr> failures(parts.size());
  std::vector<std::thread> threads;
  const auto count_part = [&](std::size_t i) {
    try {
      count_words(parts[i], counts[i]);
    } catch (...) {
      failures[i] = std::current_exception();
    }
  };
  std::size_t started = 1;
  try {
    for (; started < parts.size(); ++started) threads.emplace_back(count_part, started);
  } catch (const std::system_error&) {
    // The system gives no further thread: this one does the rest.
  }
  if (!parts.empty()) count_part(0);
  for (std::size_t i = started; i < parts.size(); ++i) count_part(i);
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
  for (const Counts& part : counts) {
    for (const auto& [word, count] : part) {
      const auto found = words_.find(word);
      if (found != words_.end()) {
        found->second += count;
      } else {
        words_.emplace(word, count);
      }
    }
  }
}

std::unique_ptr<BpeTokenizer> BpeTrainer::train() const {
  if (words_.empty()) {
    throw Error(ErrorKind::kData, "cannot train a tokenizer: the text is empty", {},
                "Give a text, some hundred kilobytes at least.");
  }
  const std::size_t specials = options_.special_tokens.size();
  const std::size_t wanted = static_cast<std::size_t>(options_.vocab_size);
  MergeSearch search(wanted - specials, std::max<std::int64_t>(1, options_.min_count),
                     reserved_bytes(options_.special_tokens));
  for (const auto& [word, count] : words_) search.add_word(word, count);
  search.run();

  BpeModel model{.tokens = search.take_tokens(), .merges = search.take_merges()};
  const std::size_t reached = model.tokens.size() + specials;
  if (reached < wanted && options_.shortfall == Shortfall::kError) {
    throw Error(ErrorKind::kData,
                "the text is too small for a vocabulary of " + std::to_string(wanted) +
                    ": no pair of tokens occurs " + std::to_string(options_.min_count) +
                    " times any more after " + std::to_string(reached) + " tokens",
                {}, "Ask for " + std::to_string(reached) + " or less, or give more text.");
  }
  for (const std::string& text : options_.special_tokens) {
    model.special_tokens.push_back({.text = text, .id = static_cast<TokenId>(model.tokens.size())});
    model.tokens.push_back(text);
  }
  model.end_of_text = model.special_tokens.back().id;
  return std::make_unique<BpeTokenizer>(std::move(model));
}

}  // namespace tessera
