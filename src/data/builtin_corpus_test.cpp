#include "data/builtin_corpus.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>
#include <string>

#include "base/error.h"
#include "data/builtin_grammar.h"

namespace tessera {
namespace {

TEST(BuiltinCorpus, TheTextDeterminesItsInformation) {
  for (const std::uint64_t seed : {1, 2, 3}) {
    const BuiltinText made = make_builtin_text(seed, 300'000);
    EXPECT_GE(made.text.size(), 300'000u);
    EXPECT_LT(made.text.size(), 305'000u);
    EXPECT_NEAR(builtin_nats(made.text), made.nats, 1e-6 * made.nats);
    EXPECT_EQ(made.text.back(), '\n');
    // Near 0.31 nats a byte; far from it the grammar was changed and the version must be too.
    EXPECT_NEAR(made.nats / static_cast<double>(made.text.size()), 0.307, 0.004);
  }
}

// A walk that checks each point of choice: two choices never begin with the same words.
class PrefixCheck final : public BuiltinChooser {
 public:
  std::size_t choose(std::span<const BuiltinChoice> choices) override {
    std::uint64_t total = 0;
    for (const BuiltinChoice& a : choices) {
      if (a.weight == 0) continue;
      total += a.weight;
      seen_.insert(std::string(a.text));
      for (const BuiltinChoice& b : choices) {
        if (&a == &b || b.weight == 0) continue;
        const bool begins = b.text.starts_with(a.text) &&
                            (b.text.size() == a.text.size() || b.text[a.text.size()] == ' ');
        if (begins) ADD_FAILURE() << "'" << a.text << "' begins '" << b.text << "'";
      }
    }
    std::size_t index = static_cast<std::size_t>(state_ >> 33) % choices.size();
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    while (choices[index].weight == 0) index = (index + 1) % choices.size();
    return index;
  }
  void emit(std::string_view) override {}
  std::set<std::string> seen_;
  std::uint64_t state_ = 1;
};

TEST(BuiltinCorpus, ChoicesNeverBeginAlike) {
  PrefixCheck check;
  for (int i = 0; i < 4'000; ++i) walk_builtin_paragraph(check);
  EXPECT_GT(check.seen_.size(), 150u);
}

TEST(BuiltinCorpus, InformationOfASentenceByHand) {
  // Of "Anna lives on a farm." the choices are 8 of 42 names, 3 of 5 verbs, 1 of 4 settings; then
  // 36 of 4 + 36 + 22 + 6 + 3 + 3 + 3 + 9 (no end before the fourth sentence) for "She", 5 of the
  // verbs' weights for "sings", 64 of 101 for the stop.
  const double opening = std::log(42.0 / 8) + std::log(5.0 / 3) + std::log(4.0);
  EXPECT_NEAR(builtin_nats("Anna lives on a farm."), opening, 1e-12);
  const double verbs = 10 + 9 + 6 + 6 + 2 + 6 + 1 + 7 + 2 + 9 + 3 + 6 + 3 + 5 + 4;
  const double second = std::log(86.0 / 36) + std::log(verbs / 5) + std::log(101.0 / 64);
  EXPECT_NEAR(builtin_nats("Anna lives on a farm. She sings."), opening + second, 1e-12);
  const double sum = std::log(86.0) + std::log(4.0 / 3) + std::log(9.0);
  EXPECT_NEAR(builtin_nats("Anna lives on a farm. Seven plus five is twelve."), opening + sum,
              1e-12);
}

TEST(BuiltinCorpus, PrefixesOfATextNeverLoseInformation) {
  const std::string text = make_builtin_text(4, 1000).text;
  double before = 0;
  for (std::size_t size = 0; size <= text.size(); ++size) {
    const double nats = builtin_nats(std::string_view(text).substr(0, size));
    EXPECT_GE(nats, before - 4) << size;  // a word that is cut may count as a shorter one
    before = std::max(before, nats);
  }
  EXPECT_EQ(builtin_nats(""), 0);
}

TEST(BuiltinCorpus, OtherTextIsRefused) {
  for (const char* text :
       {"Anna lives on the moon.", "anna lives on a farm.", "Anna lives on a farm. They sing.",
        "Anna lives on a farm. Seven plus five is thirteen.", "Anna livesx"}) {
    try {
      builtin_nats(text);
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kData);
      EXPECT_NE(error.where().find("offset"), std::string::npos);
    }
  }
}

TEST(BuiltinCorpus, IsTheSameForASeedAndOtherForAnother) {
  EXPECT_EQ(make_builtin_text(1, 10'000).text, make_builtin_text(1, 10'000).text);
  EXPECT_EQ(make_builtin_text(1, 100).text.substr(0, 100),
            make_builtin_text(1, 10'000).text.substr(0, 100));
  const std::string train = make_builtin_text(kBuiltinTrainSeed, 500'000).text;
  const std::string validation = make_builtin_text(kBuiltinValidationSeed, 100'000).text;
  std::set<std::string> paragraphs;
  const auto lines = [](const std::string& text, const auto& visit) {
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = text.find('\n', at);
      visit(text.substr(at, end - at));
      at = end + 1;
    }
  };
  lines(train, [&](std::string line) { paragraphs.insert(std::move(line)); });
  lines(validation, [&](const std::string& line) { EXPECT_FALSE(paragraphs.count(line)) << line; });
}

}  // namespace
}  // namespace tessera
