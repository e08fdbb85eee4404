#include "data/builtin_corpus.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "base/error.h"
#include "base/philox.h"
#include "data/builtin_grammar.h"

namespace tessera {
namespace {

constexpr std::uint64_t kCorpusStream = 0x636f727075730000;

std::uint64_t total_of(std::span<const BuiltinChoice> choices) {
  std::uint64_t total = 0;
  for (const BuiltinChoice& choice : choices) total += choice.weight;
  return total;
}

double information(std::uint64_t weight, std::uint64_t total) {
  return std::log(static_cast<double>(total) / static_cast<double>(weight));
}

class Generator final : public BuiltinChooser {
 public:
  explicit Generator(std::uint64_t seed) : seed_(seed) {}

  std::size_t choose(std::span<const BuiltinChoice> choices) override {
    const std::uint64_t total = total_of(choices);
    std::uint64_t rest = scale_to(philox_bits(seed_, kCorpusStream, draws_++), total);
    std::size_t index = 0;
    while (rest >= choices[index].weight) rest -= choices[index++].weight;
    result.text += choices[index].text;
    result.nats += information(choices[index].weight, total);
    return index;
  }
  void emit(std::string_view text) override { result.text += text; }

  BuiltinText result;

 private:
  std::uint64_t seed_, draws_ = 0;
};

// Ends the walk where the text ends inside a paragraph.
struct EndOfText {};

class Reader final : public BuiltinChooser {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  std::size_t choose(std::span<const BuiltinChoice> choices) override {
    const std::uint64_t total = total_of(choices);
    if (at_ == text_.size()) throw EndOfText{};
    double cut = -1;  // the least information of the choices that the end of the text cuts
    for (std::size_t i = 0; i < choices.size(); ++i) {
      const auto [word, weight] = choices[i];
      if (weight == 0) continue;
      const double nats = information(weight, total);
      if (matches(word)) {
        at_ += word.size();
        nats_ += nats;
        return i;
      }
      const std::string_view rest = text_.substr(at_);
      if (rest.size() <= word.size() && word.starts_with(rest)) {
        const double share = static_cast<double>(rest.size()) / static_cast<double>(word.size());
        cut = cut < 0 ? nats * share : std::min(cut, nats * share);
      }
    }
    if (cut < 0) fail();
    nats_ += cut;
    throw EndOfText{};
  }

  void emit(std::string_view text) override {
    const std::string_view rest = text_.substr(at_, text.size());
    if (!text.starts_with(rest)) fail();
    at_ += rest.size();
    if (rest.size() < text.size()) throw EndOfText{};
  }

  bool at_end() const { return at_ == text_.size(); }
  double nats() const { return nats_; }

 private:
  static bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

  // The word, and no longer one: " a" does not match " an". At the end of the text the word might
  // go on, which is told apart nowhere: whole words at the end count as whole.
  bool matches(std::string_view word) const {
    if (!text_.substr(at_).starts_with(word)) return false;
    const std::size_t end = at_ + word.size();
    return end == text_.size() || !is_letter(word.back()) || !is_letter(text_[end]);
  }

  [[noreturn]] void fail() const {
    throw Error(ErrorKind::kData, "the text is not one that the built-in grammar makes",
                "offset " + std::to_string(at_));
  }

  std::string_view text_;
  std::size_t at_ = 0;
  double nats_ = 0;
};

}  // namespace

BuiltinText make_builtin_text(std::uint64_t seed, std::size_t bytes) {
  Generator generator(seed);
  generator.result.text.reserve(bytes + 4096);
  while (generator.result.text.size() < bytes) walk_builtin_paragraph(generator);
  return std::move(generator.result);
}

double builtin_nats(std::string_view text) {
  Reader reader(text);
  try {
    while (!reader.at_end()) walk_builtin_paragraph(reader);
  } catch (const EndOfText&) {
    // The last paragraph is not whole.
  }
  return reader.nats();
}

}  // namespace tessera
