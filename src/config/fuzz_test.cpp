// Hostile input: whatever the bytes, loading ends soon, with a config or with one Error.
#include <gtest/gtest.h>

#include <random>

#include "base/error.h"
#include "base/temporary_directory.h"
#include "config/fields.h"
#include "config/format.h"
#include "config/load.h"

namespace tessera {
namespace {

constexpr const char* kSeed = R"(defaults: []
run: {name: a, seed: 3, notes: "x\ty"}
model: &m
  preset: tiny
  n_layer: 2
  dropout: 0.1
data:
  train: [a.txt, 'b*.txt']
  tokenizer: bpe:300
  separator: ${env:HOME,x}
optim:
  betas: [0.9, 0.95]
  lr: 3e-4
train:
  max_steps: 10
  eval_every: 2 epochs
  sample_prompt: |
    To be
log: {every: 5, ranks: all}
)";

// Whether it is a config; anything but a config or an Error fails the test. What is a config must
// survive being printed and read.
bool survives(const Path& path, const std::vector<std::string>& overrides) {
  try {
    const ResolvedConfig resolved = load_config(
        {.config = path.string(), .overrides = overrides, .config_dir = {}, .shipped_dir = {}});
    const Config again = config_from_yaml(resolved.yaml(), "printed");
    EXPECT_EQ(again, resolved.config) << resolved.yaml();
    return true;
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig) << error.what();
    EXPECT_FALSE(error.reason().empty());
    return false;
  }
}

class FuzzTest : public testing::Test {
 protected:
  bool load(const std::string& text, const std::vector<std::string>& overrides = {}) {
    const Path path = folder_.path() / "f.yaml";
    files_->create(path)->write(text);
    return survives(path, overrides);
  }
  TemporaryDirectory folder_;
  std::unique_ptr<FileSystem> files_ = make_posix_file_system();
  std::mt19937 random_{12345};
};

TEST_F(FuzzTest, RandomBytes) {
  for (int i = 0; i < 200; ++i) {
    std::string text(random_() % 200, '\0');
    for (char& c : text) c = static_cast<char>(i % 2 == 0 ? random_() % 256 : 32 + random_() % 95);
    load(text);
  }
}

TEST_F(FuzzTest, MutatedConfigs) {
  const std::string alphabet = ":-[]{},'\"|>&*!#%@`~?\n\t $0a.e+";
  int valid = 0;
  for (int i = 0; i < 600; ++i) {
    std::string text = kSeed;
    for (std::uint32_t changes = 1 + random_() % 3; changes > 0; --changes) {
      const std::size_t at = random_() % text.size();
      const char c = alphabet[random_() % alphabet.size()];
      switch (random_() % 4) {
        case 0: text[at] = c; break;
        case 1: text.insert(at, 1, c); break;
        case 2: text.erase(at, 1 + random_() % 5); break;
        default: text.insert(random_() % text.size(), text.substr(at, random_() % 30)); break;
      }
    }
    valid += load(text) ? 1 : 0;
  }
  EXPECT_GT(valid, 10) << "the mutations are too wild to test what is read";
}

TEST_F(FuzzTest, MutatedOverrides) {
  for (int i = 0; i < 600; ++i) {
    const Field& field = fields()[random_() % fields().size()];
    std::string text = std::string(field.key) + "=" + format_value(field, Config());
    text[random_() % text.size()] = static_cast<char>(1 + random_() % 255);
    if (random_() % 2 == 0)
      text.insert(random_() % text.size(), 1, "[]{}'\"~+=,:$"[random_() % 12]);
    load(kSeed, {text});
  }
}

}  // namespace
}  // namespace tessera
