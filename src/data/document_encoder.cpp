#include "data/document_encoder.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <system_error>
#include <thread>
#include <utility>

#include "base/error.h"

namespace tessera {
namespace {

constexpr std::size_t kBatchBytes = std::size_t{16} << 20;
constexpr std::size_t kEndBytes = 4096;                    // longer than any special token
constexpr std::size_t kSmallBytes = std::size_t{1} << 18;  // below it a thread costs more

// Runs body(i) for every i < count. What the lowest i throws is thrown here, as one thread would.
void for_each_on_threads(std::size_t count, int threads,
                         const std::function<void(std::size_t)>& body) {
  std::atomic<std::size_t> next = 0;
  std::atomic<bool> failed = false;
  std::vector<std::exception_ptr> failures(count);
  const auto work = [&] {
    for (std::size_t i = next++; i < count && !failed; i = next++) {
      try {
        body(i);
      } catch (...) {
        failures[i] = std::current_exception();
        failed = true;
      }
    }
  };
  {
    std::vector<std::jthread> others;
    try {
      for (int t = 1; t < threads; ++t) others.emplace_back(work);
    } catch (const std::system_error&) {
      // No further thread to be had: those that run share the work.
    }
    work();
  }
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
}

}  // namespace

DocumentEncoder::DocumentEncoder(std::shared_ptr<const Tokenizer> tokenizer, EncodeOptions options,
                                 TokenFileWriter& writer)
    : tokenizer_(std::move(tokenizer)),
      options_(std::move(options)),
      writer_(writer),
      next_cut_(kBatchBytes) {
  if (options_.separator == "end-of-text") {
    if (tokenizer_->end_of_text()) separator_ = {*tokenizer_->end_of_text()};
  } else if (options_.separator != "none") {
    separator_ = tokenizer_->encode(options_.separator, options_.special);
  }
}

void DocumentEncoder::text(std::string_view part, bool last) {
  hash_.update(part);
  text_bytes_ += part.size();
  open_ += part;
  if (!last) {
    if (open_.size() >= next_cut_) encode_waiting();
    return;
  }
  hash_.update(std::string_view("\0", 1));
  if (in_pieces_) {
    encode_piece(open_);
    in_pieces_ = false;
    next_cut_ = kBatchBytes;
    open_.clear();
    return;
  }
  batch_bytes_ += open_.size();
  batch_.push_back(std::move(open_));
  open_.clear();
  if (batch_bytes_ >= kBatchBytes) encode_batch();
}

void DocumentEncoder::ids(std::span<const std::uint32_t> ids, std::string_view where) {
  std::uint64_t bytes = 0;
  for (const std::uint32_t id : ids) {
    if (!tokenizer_->is_token(static_cast<TokenId>(id))) {
      throw Error(ErrorKind::kData,
                  "token id " + std::to_string(id) + " is not in the tokenizer's vocabulary of " +
                      std::to_string(tokenizer_->vocab_size()),
                  std::string(where), "Set data.tokenizer to the one that made the ids.");
    }
    bytes += tokenizer_->token_bytes(static_cast<TokenId>(id)).size();
  }
  encode_batch();
  begin_document();
  hash_.update(std::as_bytes(ids));
  text_bytes_ += bytes;
  writer_.append(ids);
}

void DocumentEncoder::begin_document() {
  if (documents_ > 0) append(separator_);
  ++documents_;
  writer_.begin_document();
}

void DocumentEncoder::append(std::span<const TokenId> ids) {
  // The same bits: ids are never negative.
  writer_.append({reinterpret_cast<const std::uint32_t*>(ids.data()), ids.size()});
}

// A long document: all of it up to a place where a cut changes nothing.
void DocumentEncoder::encode_waiting() {
  const std::size_t cut = tokenizer_->split_point(open_, open_.size() / 2, options_.special);
  // Not near the end, where a special token may be cut. Without a place, not again at every part.
  if (cut + kEndBytes > open_.size()) {
    next_cut_ = open_.size() * 2;
    return;
  }
  if (!in_pieces_) {
    encode_batch();
    begin_document();
    in_pieces_ = true;
  }
  encode_piece(std::string_view(open_).substr(0, cut));
  open_.erase(0, cut);
  next_cut_ = std::max(kBatchBytes, open_.size() * 2);
}

void DocumentEncoder::encode_piece(std::string_view text) {
  append(tokenizer_->encode(text, options_.special, options_.threads));
}

void DocumentEncoder::encode_batch() {
  if (batch_.empty()) return;
  std::vector<std::vector<TokenId>> ids(batch_.size());
  const int threads = batch_bytes_ < kSmallBytes ? 1 : options_.threads;
  if (batch_.size() == 1) {
    ids[0] = tokenizer_->encode(batch_[0], options_.special, threads);
  } else {
    // Slices of several documents, so that short ones do not fight for the counter.
    const std::size_t slice = 1 + batch_.size() / (static_cast<std::size_t>(threads) * 8);
    const std::size_t slices = (batch_.size() + slice - 1) / slice;
    for_each_on_threads(slices, std::min(threads, static_cast<int>(slices)), [&](std::size_t s) {
      const std::size_t end = std::min((s + 1) * slice, batch_.size());
      for (std::size_t i = s * slice; i < end; ++i) {
        tokenizer_->append(batch_[i], options_.special, ids[i]);
      }
    });
  }
  for (const std::vector<TokenId>& document : ids) {
    begin_document();
    append(document);
  }
  batch_.clear();
  batch_bytes_ = 0;
}

TokenFileFacts DocumentEncoder::finish() {
  encode_batch();
  return writer_.finish(text_bytes_, hash_.digest(), tokenizer_->hash());
}

}  // namespace tessera
