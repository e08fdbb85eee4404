// A text that the program makes itself, for runs that need nothing from outside. Owns: the grammar,
// and the exact probability of any text that it makes. Not: files, tokens.
//
// Paragraphs about a person in a place: "Anna lives on a farm. She feeds the brown hens. …". Every
// choice is which words come next, with a probability that depends on what was said before (who
// "she" is, which nouns fit the place, what can be eaten, whether the verb is singular). The
// choices offered at a point never begin alike (as words), so that the text determines them, and
// the sum of their -ln p is the exact information of the text: no model can reach a lower expected
// loss than that. Weights are whole numbers: a text is the same on every machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tessera {

inline constexpr int kBuiltinCorpusVersion = 1;  // part of cache keys; other text: other number
inline constexpr std::size_t kBuiltinTrainBytes = 6'000'000;
inline constexpr std::size_t kBuiltinValidationBytes = 200'000;
inline constexpr std::uint64_t kBuiltinTrainSeed = 1, kBuiltinValidationSeed = 2;

struct BuiltinText {
  std::string text;  // whole paragraphs, one a line; at least the bytes asked for
  double nats = 0;   // -ln of its probability
};
BuiltinText make_builtin_text(std::uint64_t seed, std::size_t bytes);

// -ln of the probability of `text` under the grammar, read from its first paragraph on. It may end
// anywhere: of a word that it cuts, the share of bytes that is there counts. Error{kData} with the
// offset where the grammar could not have made it.
double builtin_nats(std::string_view text);

}  // namespace tessera
