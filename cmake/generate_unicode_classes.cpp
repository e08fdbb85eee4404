// Build tool: reads UnicodeData.txt and PropList.txt of the Unicode Character Database and prints
// the two-stage table behind tokenizer/unicode_classes.h. Usage: generate_unicode_classes
// UnicodeData.txt PropList.txt OUTPUT
#include <array>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

constexpr std::uint32_t kCodePoints = 0x110000;
constexpr std::uint32_t kBlock = 256;
// The values of tessera::CharClass.
constexpr std::uint8_t kLetter = 1, kNumber = 2, kSpace = 3;

using Classes = std::vector<std::uint8_t>;

void fill(Classes& classes, std::uint32_t first, std::uint32_t last, std::uint8_t value) {
  if (first > last || last >= kCodePoints) throw std::runtime_error("a range outside Unicode");
  for (std::uint32_t code = first; code <= last; ++code) classes[code] = value;
}

std::ifstream open(const char* path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error(std::string("cannot read ") + path);
  return file;
}

// code;name;general category;… ; a range is a pair of lines whose names end in ", First>" and ",
// Last>".
void read_categories(const char* path, Classes& classes) {
  std::ifstream file = open(path);
  std::string line;
  std::uint32_t range_first = 0;
  std::size_t lines = 0;
  while (std::getline(file, line)) {
    const std::size_t name_at = line.find(';') + 1;
    const std::size_t category_at = line.find(';', name_at) + 1;
    if (name_at == 0 || category_at == 0 || category_at >= line.size()) {
      throw std::runtime_error(std::string(path) + ": a line without three fields");
    }
    ++lines;
    const auto code = static_cast<std::uint32_t>(std::stoul(line, nullptr, 16));
    const std::string name = line.substr(name_at, category_at - 1 - name_at);
    if (name.ends_with(", First>")) {
      range_first = code;
      continue;
    }
    const char category = line[category_at];
    const std::uint8_t value = category == 'L' ? kLetter : category == 'N' ? kNumber : 0;
    fill(classes, name.ends_with(", Last>") ? range_first : code, code, value);
  }
  if (lines < 10000) throw std::runtime_error(std::string(path) + ": too short");
}

// first[..last] ; Property # comment
void read_white_space(const char* path, Classes& classes) {
  std::ifstream file = open(path);
  std::string line;
  std::size_t ranges = 0;
  while (std::getline(file, line)) {
    const std::size_t property_at = line.find("; White_Space #");
    if (property_at == std::string::npos) continue;
    ++ranges;
    const std::size_t dots = line.find("..");
    const auto first = static_cast<std::uint32_t>(std::stoul(line, nullptr, 16));
    const auto last =
        dots < property_at
            ? static_cast<std::uint32_t>(std::stoul(line.substr(dots + 2), nullptr, 16))
            : first;
    fill(classes, first, last, kSpace);
  }
  if (ranges == 0) throw std::runtime_error(std::string(path) + ": no White_Space");
}

void print_numbers(std::ostream& out, const char* declaration, const Classes& numbers) {
  out << declaration << " = {";
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    out << (i % 32 == 0 ? "\n" : "") << static_cast<int>(numbers[i]) << ',';
  }
  out << "};\n";
}

void print(std::ostream& out, const Classes& classes) {
  std::map<Classes, std::uint8_t> block_index;
  Classes blocks, index;
  for (std::uint32_t first = 0; first < kCodePoints; first += kBlock) {
    const Classes block(classes.begin() + first, classes.begin() + first + kBlock);
    if (block_index.size() > 255) throw std::runtime_error("more than 256 different blocks");
    const auto [found, is_new] =
        block_index.try_emplace(block, static_cast<std::uint8_t>(block_index.size()));
    if (is_new) blocks.insert(blocks.end(), block.begin(), block.end());
    index.push_back(found->second);
  }
  out << "// Made by cmake/generate_unicode_classes.cpp from the Unicode Character Database.\n"
         "#include \"tokenizer/unicode_classes.h\"\n\nnamespace tessera::unicode_tables {\n";
  print_numbers(out, "const std::uint8_t kBlockIndex[]", index);
  print_numbers(out, "const std::uint8_t kBlocks[]", blocks);
  out << "}  // namespace tessera::unicode_tables\n";
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc != 4) throw std::runtime_error("usage: UnicodeData.txt PropList.txt OUTPUT");
    Classes classes(kCodePoints, 0);
    read_categories(argv[1], classes);
    read_white_space(argv[2], classes);
    std::ofstream out(argv[3]);
    print(out, classes);
    out.close();
    if (!out) throw std::runtime_error(std::string("cannot write ") + argv[3]);
  } catch (const std::exception& error) {
    std::cerr << "generate_unicode_classes: " << error.what() << '\n';
    return 1;
  }
  return 0;
}
