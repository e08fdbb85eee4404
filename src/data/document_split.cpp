#include "data/document_split.h"

#include <algorithm>

#include "data/utf8_check.h"

namespace tessera {

void DocumentCounter::text(std::string_view part, bool last) {
  length += count_characters(part);
  documents += last;
}

void DocumentCounter::ids(std::span<const std::uint32_t> ids, std::string_view) {
  length += ids.size();
  ++documents;
}

void DocumentSplit::text(std::string_view part, bool last) {
  for (;;) {
    const std::size_t here =
        at_ < sections_.size() ? skip_characters(part, sections_[at_].length) : part.size();
    const bool crosses = here < part.size();
    if (sink() != nullptr && (here > 0 || open_)) {
      sink()->text(part.substr(0, here), crosses || last);
    }
    open_ = !crosses && !last && (open_ || here > 0);
    if (!crosses) return;
    part.remove_prefix(here);
    ++at_;
  }
}

void DocumentSplit::ids(std::span<const std::uint32_t> ids, std::string_view where) {
  while (!ids.empty() && at_ < sections_.size()) {
    std::uint64_t& length = sections_[at_].length;
    const std::size_t here = std::min<std::uint64_t>(ids.size(), length);
    if (here > 0 && sink() != nullptr) sink()->ids(ids.first(here), where);
    length -= here;
    ids = ids.subspan(here);
    if (!ids.empty()) ++at_;
  }
}

}  // namespace tessera
