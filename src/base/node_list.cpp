#include "base/node_list.h"

#include <charconv>
#include <cstdint>

#include "base/error.h"

namespace tessera {
namespace {

// More than any cluster has: a typing error must not fill the memory.
constexpr std::size_t kMostEntries = std::size_t{1} << 16;

class Scanner {
 public:
  Scanner(const char* what, std::string_view text) : what_(what), text_(text) {}

  bool at_end() const { return at_ == text_.size(); }
  char peek() const { return at_end() ? '\0' : text_[at_]; }
  bool skip(char wanted) {
    if (at_end() || text_[at_] != wanted) return false;
    ++at_;
    return true;
  }
  void expect(char wanted) {
    if (!skip(wanted)) fail(std::string("'") + wanted + "' is missing");
  }

  template <typename Predicate>
  std::string_view take(Predicate belongs) {
    const std::size_t begin = at_;
    while (!at_end() && belongs(text_[at_])) ++at_;
    return text_.substr(begin, at_ - begin);
  }

  std::string_view digits() {
    const std::string_view found = take([](char c) { return c >= '0' && c <= '9'; });
    if (found.empty()) fail("a number is missing");
    return found;
  }

  std::int64_t value(std::string_view digits, std::int64_t most) const {
    std::int64_t number = 0;
    const auto [end, error] = std::from_chars(digits.begin(), digits.end(), number);
    if (error != std::errc() || number > most)
      fail("the number " + std::string(digits) + " is too large");
    return number;
  }

  [[noreturn]] void fail(const std::string& why) const {
    throw Error(ErrorKind::kConfig, "the " + std::string(what_) + " cannot be read: " + why,
                "character " + std::to_string(at_ + 1) + " of '" + std::string(text_) + "'",
                "It comes from Slurm's environment: if nobody has changed it, set MASTER_ADDR and "
                "MASTER_PORT, and report it.");
  }

 private:
  const char* what_;
  std::string_view text_;
  std::size_t at_ = 0;
};

bool is_of_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '_' || c == '.';
}

// "10,20-25]" after its bracket.
std::vector<std::string> numbers_in_brackets(Scanner& scanner) {
  std::vector<std::string> numbers;
  do {
    const std::string_view first = scanner.digits();
    const std::string_view last = scanner.skip('-') ? scanner.digits() : first;
    const std::int64_t begin = scanner.value(first, INT64_MAX - 1);
    const std::int64_t end = scanner.value(last, INT64_MAX - 1);
    if (end < begin) scanner.fail("a range ends before it begins");
    if (static_cast<std::uint64_t>(end - begin) >= kMostEntries - numbers.size())
      scanner.fail("more than " + std::to_string(kMostEntries) + " nodes");
    for (std::int64_t number = begin; number <= end; ++number) {
      std::string digits = std::to_string(number);
      if (digits.size() < first.size()) digits.insert(0, first.size() - digits.size(), '0');
      numbers.push_back(std::move(digits));
    }
  } while (scanner.skip(','));
  scanner.expect(']');
  return numbers;
}

// One item: names and brackets in any order; the last bracket counts fastest.
std::vector<std::string> nodes_of_item(Scanner& scanner) {
  std::vector<std::string> nodes = {""};
  bool anything = false;
  while (!scanner.at_end() && scanner.peek() != ',') {
    anything = true;
    if (scanner.skip('[')) {
      const std::vector<std::string> numbers = numbers_in_brackets(scanner);
      if (nodes.size() * numbers.size() > kMostEntries)
        scanner.fail("more than " + std::to_string(kMostEntries) + " nodes");
      std::vector<std::string> longer;
      longer.reserve(nodes.size() * numbers.size());
      for (const std::string& node : nodes)
        for (const std::string& number : numbers) longer.push_back(node + number);
      nodes = std::move(longer);
      continue;
    }
    const std::string_view name = scanner.take(is_of_name);
    if (name.empty()) scanner.fail("this character is not of a name");
    for (std::string& node : nodes) node += name;
  }
  if (!anything) scanner.fail("a name is missing");
  return nodes;
}

}  // namespace

std::vector<std::string> parse_node_list(std::string_view text) {
  Scanner scanner("list of nodes", text);
  std::vector<std::string> nodes;
  do {
    std::vector<std::string> more = nodes_of_item(scanner);
    if (nodes.size() + more.size() > kMostEntries)
      scanner.fail("more than " + std::to_string(kMostEntries) + " nodes");
    nodes.insert(nodes.end(), std::make_move_iterator(more.begin()),
                 std::make_move_iterator(more.end()));
  } while (scanner.skip(','));
  return nodes;
}

std::vector<int> parse_tasks_per_node(std::string_view text) {
  Scanner scanner("list of tasks per node", text);
  std::vector<int> counts;
  do {
    const auto count = static_cast<int>(scanner.value(scanner.digits(), kMostEntries));
    std::size_t repeats = 1;
    if (scanner.skip('(')) {
      scanner.expect('x');
      repeats = static_cast<std::size_t>(scanner.value(scanner.digits(), kMostEntries));
      scanner.expect(')');
    }
    if (counts.size() + repeats > kMostEntries)
      scanner.fail("more than " + std::to_string(kMostEntries) + " nodes");
    counts.insert(counts.end(), repeats, count);
  } while (scanner.skip(','));
  if (!scanner.at_end()) scanner.fail("a comma or the end is expected");
  return counts;
}

}  // namespace tessera
