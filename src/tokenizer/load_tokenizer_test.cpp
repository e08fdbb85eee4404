#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <string>

#include "base/error.h"
#include "base/temporary_directory.h"
#include "tokenizer/bpe_trainer.h"
#include "tokenizer/byte_tokenizer.h"
#include "tokenizer/tokenizer.h"

namespace tessera {
namespace {

class LoadTokenizerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    BpeTrainer trainer(
        {.vocab_size = 300, .special_tokens = {"<\xC3\xA9>"}, .shortfall = Shortfall::kSmaller});
    trainer.add("some text, some more text and some \"quoted\" text\\ with text\n");
    tokenizer_ = trainer.train();
    tokenizer_->save(*files_, path());
  }
  const Path& path() const { return directory_.path(); }
  void write(const std::string& name, const std::string& text) {
    std::ofstream(path() / name) << text;
  }
  void remove(const std::string& name) { std::filesystem::remove(path() / name); }
  void replace(const std::string& name, const std::string& from, const std::string& to) {
    std::string text = files_->read(path() / name);
    const std::size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    write(name, text.replace(at, from.size(), to));
  }
  void expect_error(ErrorKind kind, const std::string& file, const std::string& reason) {
    try {
      load_tokenizer(path());
      ADD_FAILURE() << "no error: " << reason;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), kind) << error.what();
      EXPECT_EQ(error.where(), (path() / file).string().substr(0, error.where().size()))
          << error.what();
      EXPECT_NE(std::string(error.what()).find(reason), std::string::npos) << error.what();
    }
  }

  std::unique_ptr<FileSystem> files_ = make_posix_file_system();
  TemporaryDirectory directory_;
  std::unique_ptr<Tokenizer> tokenizer_;
};

TEST_F(LoadTokenizerTest, AllLayoutsGiveTheSameTokenizer) {
  EXPECT_EQ(load_tokenizer(path())->hash(), tokenizer_->hash());
  remove("tokenizer.json");
  EXPECT_EQ(load_tokenizer(path())->hash(), tokenizer_->hash());
  std::filesystem::rename(path() / "vocab.json", path() / "encoder.json");
  std::filesystem::rename(path() / "merges.txt", path() / "vocab.bpe");
  EXPECT_EQ(load_tokenizer(path())->hash(), tokenizer_->hash());
}

TEST_F(LoadTokenizerTest, MergesMayBeListsOfTwo) {
  std::string text = files_->read(path() / "tokenizer.json");
  for (std::size_t at = text.find("\"merges\"");
       (at = text.find("\n      \"", at)) != std::string::npos; ++at) {
    const std::size_t blank = text.find(' ', at + 8);
    const std::size_t end = text.find_first_of(",\n", blank);
    text.insert(end, "]").replace(blank, 1, "\", \"").insert(at + 7, "[");
  }
  write("tokenizer.json", text);
  EXPECT_EQ(load_tokenizer(path())->hash(), tokenizer_->hash());
}

TEST_F(LoadTokenizerTest, EndOfTextIsWhatTheFolderSays) {
  replace("tokenizer_config.json", "\"eos_token\": \"<|endoftext|>\"",
          "\"eos_token\": {\"content\": \"<\xC3\xA9>\"}");
  const auto loaded = load_tokenizer(path());
  EXPECT_EQ(loaded->token_bytes(*loaded->end_of_text()), "<\xC3\xA9>");
  EXPECT_EQ(loaded->special_tokens().size(), 2U);
}

TEST_F(LoadTokenizerTest, AddedTokensJsonExtendsTheVocabulary) {
  remove("tokenizer.json");
  write("added_tokens.json", "{\"<extra>\": 500}");
  const auto loaded = load_tokenizer(path());
  EXPECT_EQ(loaded->vocab_size(), 501);
  EXPECT_EQ(loaded->encode("<extra>"), std::vector<TokenId>{500});
}

TEST_F(LoadTokenizerTest, MissingFilesAreNamed) {
  remove("tokenizer.json");
  remove("merges.txt");
  expect_error(ErrorKind::kIo, "", "vocab.json is there but merges.txt is missing");
  remove("vocab.json");
  expect_error(ErrorKind::kIo, "", "no tokenizer's files are there");
  EXPECT_THROW(load_tokenizer(path() / "nowhere"), Error);
  EXPECT_THROW(load_tokenizer(path() / "tokenizer_config.json"), Error);
}

TEST_F(LoadTokenizerTest, SavingReplacesATokenizerOfAnotherKind) {
  const auto bytes = make_byte_tokenizer(EndOfText::kNone);
  bytes->save(*files_, path());
  EXPECT_EQ(load_tokenizer(path())->hash(), bytes->hash());
  tokenizer_->save(*files_, path());
  EXPECT_EQ(load_tokenizer(path())->hash(), tokenizer_->hash());
}

TEST_F(LoadTokenizerTest, TwoTokenizersInAFolderAreRefused) {
  for (const TokenizerFile& file : make_byte_tokenizer(EndOfText::kNone)->files()) {
    write(file.name, file.content);
  }
  expect_error(ErrorKind::kCorrupt, "", "the folder holds two");
  remove("tokenizer.json");
  expect_error(ErrorKind::kCorrupt, "", "the folder holds two");
  remove("tessera_tokenizer.json");
  write("encoder.json", files_->read(path() / "vocab.json"));
  write("vocab.bpe", files_->read(path() / "merges.txt"));
  EXPECT_EQ(load_tokenizer(path())->hash(), tokenizer_->hash());
  write("vocab.bpe", "#version: 0.2\n");
  expect_error(ErrorKind::kCorrupt, "", "which differ");
}

TEST_F(LoadTokenizerTest, BrokenFilesAreNamedWithTheReason) {
  const auto broken = [&](const std::string& name, const std::string& text,
                          const std::string& reason) {
    const std::string good = files_->read(path() / name);
    write(name, text);
    expect_error(ErrorKind::kCorrupt, name, reason);
    write(name, good);
  };
  const std::string json = files_->read(path() / "tokenizer.json");
  broken("tokenizer.json", "", "empty");
  broken("tokenizer.json", json.substr(0, json.size() / 2), "broken JSON at byte");
  broken("tokenizer.json", "[]", "no field 'model'");
  broken("tokenizer.json", std::string(100, '['), "64 deep");
  broken("tokenizer.json", "{\"model\": {\"vocab\": {\"a\": \"b\"}, \"merges\": []}}",
         "the id of token 'a' is no integer");
  broken("tokenizer.json", "{\"model\": {\"vocab\": {}, \"merges\": [[\"a\"]]}}",
         "something else than pairs");
  broken("tokenizer.json", "{\"model\": {\"vocab\": {}, \"merges\": [\"a\"]}}",
         "is no pair of tokens");
  broken("tokenizer_config.json", "{", "not a JSON object");
  remove("tokenizer.json");
  const std::string merges = files_->read(path() / "merges.txt");
  broken("merges.txt", merges + "a b c\n", "is no pair of tokens");
  broken("merges.txt", merges + "zz y\n", "needs token 'zz', which the vocabulary lacks");
  broken("vocab.json", "{\"a\": 1.5}", "the id of token 'a' is no integer");
  broken("vocab.json", "{\"a\": -1}", "has id -1, outside");
  broken("vocab.json", "{\"a\": 99999999999999999999}", "no integer");
  broken("vocab.json", "{\"a\": 9999999999}", "outside");
  broken("vocab.json", "{\"a\": 1, \"b\": 1}", "given to two tokens");
  broken("vocab.json", "{\"a\": 1, \"a\": 2}", "given twice");
  broken("vocab.json", "{\"\": 1}", "without text");
  broken("vocab.json", "[1]", "not an object");
}

TEST_F(LoadTokenizerTest, OtherModelsThanGpt2sAreRefused) {
  const auto refused = [&](const std::string& from, const std::string& to,
                           const std::string& reason) {
    const std::string good = files_->read(path() / "tokenizer.json");
    replace("tokenizer.json", from, to);
    expect_error(ErrorKind::kCorrupt, "tokenizer.json", reason);
    write("tokenizer.json", good);
  };
  refused("\"type\": \"BPE\"", "\"type\": \"Unigram\"", "model.type is Unigram");
  refused("\"normalizer\": null", "\"normalizer\": {\"type\": \"NFC\"}", "normalizer is NFC");
  refused("\"pre_tokenizer\": {\"type\": \"ByteLevel\"",
          "\"pre_tokenizer\": {\"type\": \"Metaspace\"", "pre_tokenizer is Metaspace");
  refused("\"add_prefix_space\": false", "\"add_prefix_space\": true", "add_prefix_space is true");
  refused("\"use_regex\": true", "\"use_regex\": false", "use_regex is false");
  refused("\"post_processor\": {\"type\": \"ByteLevel\"",
          "\"post_processor\": {\"type\": \"RobertaProcessing\"",
          "post_processor is RobertaProcessing");
  refused("\"byte_fallback\": false", "\"byte_fallback\": true", "byte_fallback");
  refused("\"dropout\": null", "\"dropout\": 0.1", "dropout");
  refused("\"end_of_word_suffix\": \"\"", "\"end_of_word_suffix\": \"</w>\"", "end_of_word_suffix");
  refused("\"lstrip\": false", "\"lstrip\": true", "lstrip");
}

}  // namespace
}  // namespace tessera
