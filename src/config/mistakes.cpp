#include "config/mistakes.h"

#include <algorithm>

#include "base/error.h"

namespace tessera {
namespace {
constexpr std::size_t kShown = 50;
}

std::string to_string(const Place& place) {
  if (place.line == 0) return place.file;
  return place.file + ":" + std::to_string(place.line) + ":" + std::to_string(place.column);
}

void Mistakes::add(const Place& place, std::string_view key, std::string_view message,
                   std::string_view hint) {
  Mistake mistake;
  mistake.text = to_string(place);
  if (!mistake.text.empty()) mistake.text += ": ";
  if (!key.empty()) mistake.text += std::string(key) + ": ";
  mistake.text += message;
  mistake.hint = hint;
  // An alias or a base file used twice would say the same thing twice.
  const auto same = [&](const Mistake& other) { return other.text == mistake.text; };
  if (std::none_of(list_.begin(), list_.end(), same)) list_.push_back(std::move(mistake));
}

void Mistakes::throw_if_any() const {
  if (list_.empty()) return;
  const Mistake& first = list_.front();
  if (list_.size() == 1) throw Error(ErrorKind::kConfig, first.text, {}, first.hint);
  std::string text;
  for (std::size_t i = 0; i < std::min(list_.size(), kShown); ++i) {
    text += list_[i].text + "." + (list_[i].hint.empty() ? "" : " " + list_[i].hint) + "\n";
  }
  if (list_.size() > kShown) {
    text += "… and " + std::to_string(list_.size() - kShown) + " more\n";
  }
  text += std::to_string(list_.size()) + " mistakes in the configuration; the first: " + first.text;
  throw Error(ErrorKind::kConfig, text, {}, first.hint);
}

}  // namespace tessera
