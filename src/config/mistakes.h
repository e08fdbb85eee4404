// Everything that is wrong with a configuration, reported together. Owns: places, the layout of the
// list. Not: finding mistakes.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tessera {

// Where a value was written. line 0: `file` is all that can be said (an override, a whole file).
struct Place {
  std::string file;
  int line = 0, column = 0;  // from 1
};
std::string to_string(const Place& place);  // "train.yaml:3:5"

class Mistakes {
 public:
  // `key` may be empty. `message` without a final stop; `hint` a whole sentence.
  void add(const Place& place, std::string_view key, std::string_view message,
           std::string_view hint = {});
  bool empty() const { return list_.empty(); }
  std::size_t size() const { return list_.size(); }

  // Error{kConfig} with one line "place: key: message. Hint" for each, in the order of adding;
  // where there are several, a last line says how many and repeats the first.
  void throw_if_any() const;

 private:
  struct Mistake {
    std::string text, hint;
  };
  std::vector<Mistake> list_;
};

}  // namespace tessera
