#include "data/tokenizer_sinks.h"

#include "base/error.h"
#include "tokenizer/split_pattern.h"

namespace tessera {
namespace {

[[noreturn]] void refuse_ids(std::string_view where) {
  throw Error(ErrorKind::kData, "a tokenizer cannot be trained on token ids", std::string(where),
              "Use the tokenizer that made the ids, or give the text itself.");
}

}  // namespace

void CharSink::text(std::string_view part, bool last) {
  vocabulary.add(part, "the text");
  documents += last;
}

void CharSink::ids(std::span<const std::uint32_t>, std::string_view where) { refuse_ids(where); }

void BpeSink::text(std::string_view part, bool last) {
  if (last && open_.empty()) {
    trainer_.add(part);
    return;
  }
  // A long document comes in parts: only up to a place that no word crosses.
  open_ += part;
  const std::size_t cut = last ? open_.size() : safe_piece_boundary(open_, open_.size() / 2);
  if (!last && cut + 64 > open_.size()) return;
  trainer_.add(std::string_view(open_).substr(0, cut));
  open_.erase(0, cut);
}

void BpeSink::ids(std::span<const std::uint32_t>, std::string_view where) { refuse_ids(where); }

}  // namespace tessera
