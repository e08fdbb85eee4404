// Text and tokens that cannot be trained on: exit 3, before anything is trained; vocabularies that
// do not fit: exit 2.
#include "integration/tiny_run.h"

namespace tessera::testing {
namespace {

class DataFaults : public TinyRun {
 protected:
  void expect_refused(const Path& text, int exit_code, const std::vector<std::string>& parts,
                      std::vector<std::string> more = {}) const {
    more.push_back("data.train=" + text.string());
    const RunResult result = train("refused", more);
    expect_error(result, exit_code, parts);
    expect_failed_event(result, exit_code);
    EXPECT_TRUE(checkpoints("refused").empty());
  }
};

TEST_F(DataFaults, Missing) {
  expect_refused("missing.txt", 3, {"no file", "missing.txt", "Check the path"});
}

TEST_F(DataFaults, Empty) {
  expect_refused(folder_.write("empty.txt", ""), 3, {"empty", "empty.txt"});
}

TEST_F(DataFaults, FolderWithoutText) {
  std::filesystem::create_directory(folder_ / "nothing");
  expect_refused("nothing", 3, {"no text file", "nothing"});
}

TEST_F(DataFaults, Binary) {
  std::string bytes = "text at first ";
  for (int i = 0; i < 3000; ++i) bytes += static_cast<char>(i * 37);
  expect_refused(folder_.write("binary.txt", bytes), 3, {"binary", "binary.txt", "offset"});
}

TEST_F(DataFaults, BrokenCharacters) {
  const Path text =
      folder_.write("latin.txt", sample_text(50) + "caf\xe9 au lait\n" + sample_text(50));
  expect_refused(text, 3, {"latin.txt", "UTF-8", "offset"}, {"data.tokenizer=char"});
  trained("bytes",
          {"data.train=" + text.string(), "train.max_steps=1"});  // bytes are what byte tokens take
}

TEST_F(DataFaults, NotAFile) {
  expect_refused("/dev/zero", 3, {"/dev/zero", "not a regular file"});
}

TEST_F(DataFaults, OneToken) { expect_refused(folder_.write("one.txt", "x"), 3, {"one.txt"}); }

TEST_F(DataFaults, ShorterThanABlock) {
  expect_refused(folder_.write("short.txt", "hello there, world"), 3,
                 {"tokens", "33", "data.block_size"});
}

TEST_F(DataFaults, BlockLongerThanTheContext) {
  expect_error(train("long", {"data.block_size=64"}), 2,
               {"data.block_size", "64", "n_positions", "32"});
}

TEST_F(DataFaults, TokenizerOfAnotherModel) {
  trained("bytes", {"train.max_steps=2"});
  trained("characters", {"train.max_steps=2", "data.tokenizer=char"});
  const std::string bytes = (checkpoint("bytes", 2) / "tokenizer").string();
  const std::string characters = (checkpoint("characters", 2) / "tokenizer").string();
  const RunResult generated = run_program(
      command({"generate", run("bytes").string(), "--tokenizer", characters, "--prompt", "the"}));
  expect_error(generated, 2, {"tokenizer", "257", characters});
  const RunResult evaluated =
      run_program(command({"evaluate", run("characters").string(), "--tokenizer", bytes, "--data",
                           (folder_ / "text.txt").string()}));
  expect_error(evaluated, 2, {"tokenizer", "257", bytes});
  const RunResult started =
      train("from", {"model.init_from=" + run("characters").string(), "~model.n_layer",
                     "~model.n_head", "~model.n_embd", "~model.n_positions"});
  expect_error(started, 2, {"tokenizer", "257", "model.vocab_size"});
}

TEST_F(DataFaults, ChangedSinceTheRunBegan) {
  trained("changed", {"train.max_steps=2", "data.tokenizer=char"});
  folder_.write("text.txt", sample_text(120) + "QUUX\n");
  const RunResult characters = train("changed", {"data.tokenizer=char"});
  expect_error(characters, 2, {"data.tokenizer=char has", "the run's model", "--fresh"});
  expect_failed_event(characters, 2);

  folder_.write("text.txt", sample_text(120));
  trained("bytes", {"train.max_steps=2"});
  folder_.write("text.txt", sample_text(121));
  expect_error(train("bytes"), 2, {"the training data has changed", "--fresh"});
  folder_.write("text.txt", sample_text(120));
  trained("bytes", {"train.max_steps=4"});
}

}  // namespace
}  // namespace tessera::testing
