// The grammar of the built-in corpus as a walk over choices. Owns: words and their weights. Not:
// who decides (a generator that draws, or a reader that compares with a text: builtin_corpus.cpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace tessera {

struct BuiltinChoice {
  std::string_view text;  // with its leading blank or line end
  std::uint64_t weight;   // 0: never
};

class BuiltinChooser {
 public:
  virtual ~BuiltinChooser() = default;
  // Picks one; its text is now part of the output. At least one weight is not 0.
  virtual std::size_t choose(std::span<const BuiltinChoice> choices) = 0;
  // What follows by the rules, without a choice.
  virtual void emit(std::string_view text) = 0;
};

// One paragraph with its line end.
void walk_builtin_paragraph(BuiltinChooser& chooser);

}  // namespace tessera
