#include "data/prepare.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <cstdlib>
#include <thread>

#include "base/error.h"
#include "base/temporary_directory.h"
#include "data/builtin_corpus.h"
#include "data/data_cache.h"

namespace tessera {
namespace {

class PrepareTest : public ::testing::Test {
 protected:
  PrepareTest() { config_.cache_dir = (folder_.path() / "cache").string(); }

  std::string store(const std::string& name, std::string_view bytes) {
    const Path path = folder_.path() / name;
    files_->create_directories(path.parent_path());
    auto file = files_->create(path);
    file->write(bytes);
    file->close();
    return path.string();
  }
  PreparedData prepare() { return prepare_dataset(config_, *files_, log_); }
  static std::string text(const PreparedData& data, const TokenDataset& split) {
    std::string result;
    for (std::int64_t i = 0; i < split.size(); ++i) {
      result += data.tokenizer->token_bytes(static_cast<TokenId>(split.token(i)));
    }
    return result;
  }
  std::string error(ErrorKind kind) {
    try {
      prepare();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), kind) << error.what();
      return error.what();
    }
    ADD_FAILURE() << "no error";
    return {};
  }
  bool said(const std::string& part) const {
    for (const std::string& line : said_) {
      if (line.find(part) != std::string::npos) return true;
    }
    return false;
  }
  // The folder of the only entry of a kind in the cache.
  Path entry(const char* kind) {
    const Path folder = Path(config_.cache_dir) / kind;
    EXPECT_EQ(files_->list(folder).size(), 1u);
    return folder / files_->list(folder).at(0);
  }
  TemporaryDirectory folder_;
  std::unique_ptr<FileSystem> files_ = make_posix_file_system();
  std::vector<std::string> said_;
  Log log_{LogLevel::kVerbose, [this](std::string_view line) { said_.emplace_back(line); }};
  DataConfig config_;
};

TEST_F(PrepareTest, SplitsByCharactersAsTheReferenceDoes) {
  // minGPT-ddp: text[:int(len * truncate)], then the first int(len * train_split).
  std::string umlauts;
  for (int i = 0; i < 101; ++i) umlauts += "ä";
  config_.train = {store("a.txt", umlauts + std::string(100, 'b'))};
  config_.truncate = 0.7;        // int(201 * 0.7) = 140
  config_.train_fraction = 0.9;  // int(140 * 0.9) = 126
  const PreparedData data = prepare();
  EXPECT_EQ(text(data, *data.train), umlauts + std::string(25, 'b'));
  EXPECT_EQ(text(data, *data.validation), std::string(14, 'b'));
  EXPECT_EQ(data.train->text_bytes(), 202u + 25);
  EXPECT_EQ(data.validation->text_bytes(), 14u);
}

TEST_F(PrepareTest, WithoutValidationTheTailValidatesAndIsMentioned) {
  config_.train = {store("a.txt", std::string(1000, 'a'))};
  const PreparedData data = prepare();
  EXPECT_EQ(data.train->size(), 950);
  EXPECT_EQ(data.validation->size(), 50);
  EXPECT_TRUE(said("last 5 %"));
}

TEST_F(PrepareTest, WithValidationAllOfTrainTrains) {
  config_.train = {store("a.txt", "all of this")};
  config_.validation = {store("v.txt", "and that")};
  PreparedData data = prepare();
  EXPECT_EQ(text(data, *data.train), "all of this");
  EXPECT_EQ(text(data, *data.validation), "and that");
  config_.train_fraction = 0.5;
  data = prepare();
  EXPECT_EQ(text(data, *data.train), "all o");
  EXPECT_EQ(text(data, *data.validation), "and that");
}

TEST_F(PrepareTest, TheSecondCallReadsNoText) {
  config_.train = {store("a.txt", std::string(1000, 'a'))};
  config_.tokenizer = "bpe:260";
  std::vector<std::string> stages;
  const PrepareCallback progress = [&](const PrepareProgress& at) {
    if (stages.empty() || stages.back() != at.stage) stages.emplace_back(at.stage);
  };
  const PreparedData first = prepare_dataset(config_, *files_, log_, progress);
  EXPECT_FALSE(first.from_cache);
  EXPECT_EQ(stages, (std::vector<std::string>{"measuring", "training the tokenizer", "encoding"}));
  stages.clear();
  const PreparedData second = prepare_dataset(config_, *files_, log_, progress);
  EXPECT_TRUE(second.from_cache);
  EXPECT_TRUE(stages.empty());
  EXPECT_EQ(second.key, first.key);
  EXPECT_EQ(second.tokenizer->hash(), first.tokenizer->hash());
  EXPECT_EQ(text(second, *second.train), text(first, *first.train));
}

TEST_F(PrepareTest, EverythingThatMattersMakesAnotherKey) {
  config_.train = {store("a.txt", std::string(1000, 'a') + "\n")};
  const std::string key = prepare().key;
  const auto changed = [&](auto change) {
    const DataConfig before = config_;
    change();
    const std::string other = prepare().key;
    config_ = before;
    return other != key;
  };
  EXPECT_TRUE(changed([&] { config_.truncate = 0.5; }));
  EXPECT_TRUE(changed([&] { config_.train_fraction = 0.5; }));
  EXPECT_TRUE(changed([&] { config_.tokenizer = "char"; }));
  EXPECT_TRUE(changed([&] { config_.separator = "none"; }));
  EXPECT_TRUE(changed([&] { config_.special_tokens = true; }));
  EXPECT_TRUE(changed([&] { config_.validation = {store("v.txt", "xyz")}; }));
  EXPECT_TRUE(changed([&] { config_.train.push_back(store("b.txt", "x")); }));
  EXPECT_FALSE(changed([&] { config_.block_size = 8; }));
  EXPECT_FALSE(
      changed([&] { config_.train = {store("same.txt", std::string(1000, 'a') + "\n")}; }));
  store("a.txt", std::string(1000, 'b') + "\n");
  EXPECT_NE(prepare().key, key) << "same size, other content";
}

TEST_F(PrepareTest, ACorruptEntryIsMadeAgainAndSaidSo) {
  config_.train = {store("a.txt", std::string(1000, 'a'))};
  prepare();
  const Path file = entry("tokens") / "train.tok";
  const std::string good = files_->read(file);
  std::string bad = good;
  bad[40] ^= 1;
  for (const std::string& content : {bad, good.substr(0, 100), std::string()}) {
    said_.clear();
    auto out = files_->create(file);
    out->write(content);
    out->close();
    const PreparedData data = prepare();
    EXPECT_EQ(data.train->size(), 950);
    EXPECT_TRUE(said("prepared data is made again")) << content.size();
    EXPECT_EQ(files_->read(file), good);
  }
}

TEST_F(PrepareTest, ACorruptTrainedTokenizerIsMadeAgain) {
  config_.train = {store("a.txt", "abcabcabc abc abc abcd abcd abcd")};
  config_.tokenizer = "bpe:260";
  const std::string hash = prepare().tokenizer->hash();
  const Path folder = entry("tokenizers");
  for (const std::string& name : files_->list(folder)) {
    auto out = files_->create(folder / name);
    out->write("{}");
    out->close();
  }
  EXPECT_EQ(prepare().tokenizer->hash(), hash);
  EXPECT_TRUE(said("trained again"));
}

TEST_F(PrepareTest, SeveralAtOnceDoNoHarm) {
  config_.train = {
      store("a.txt", std::string(300'000, 'a') + " b c d e f g h " + std::string(9000, 'z'))};
  config_.tokenizer = "bpe:262";
  std::vector<std::thread> threads;
  std::vector<std::string> texts(4);
  for (std::size_t t = 0; t < texts.size(); ++t) {
    threads.emplace_back([&, t] {
      Log quiet(LogLevel::kQuiet, [](std::string_view) {});
      const PreparedData data = prepare_dataset(config_, *files_, quiet);
      texts[t] = text(data, *data.train) + text(data, *data.validation);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& one : texts) {
    EXPECT_TRUE(one == files_->read(config_.train[0]));
  }
  EXPECT_EQ(files_->list(entry("tokens")),
            (std::vector<std::string>{"train.tok", "validation.tok"}));
}

TEST_F(PrepareTest, CharTakesTheCharactersOfAllText) {
  config_.train = {store("a.txt", "cab")};
  config_.validation = {store("v.txt", "dé")};
  config_.tokenizer = "char";
  PreparedData data = prepare();
  EXPECT_EQ(data.tokenizer->vocab_size(), 5);
  EXPECT_EQ(data.train->token(0), 2);
  EXPECT_EQ(data.validation->token(1), 4);
  config_.train.push_back(store("b.txt", "cc"));
  data = prepare();
  EXPECT_EQ(data.tokenizer->vocab_size(), 6) << "several documents: an end of text";
  EXPECT_EQ(text(data, *data.train), "cab<|endoftext|>cc");
}

TEST_F(PrepareTest, BpeLearnsFromTheTrainingPartOnly) {
  std::string train, validation;
  for (int i = 0; i < 50; ++i) {
    train += "hello ";
    validation += "zzyx ";
  }
  config_.train = {store("a.txt", train)};
  config_.validation = {store("v.txt", validation)};
  config_.tokenizer = "bpe:300";
  PreparedData data = prepare();
  EXPECT_TRUE(said("enough repeated words for"));
  EXPECT_EQ(data.validation->size(), static_cast<std::int64_t>(validation.size())) << "no merges";
  EXPECT_LT(data.train->size(), 60);
}

TEST_F(PrepareTest, MasksAndIdsOfJsonLines) {
  config_.train = {store("a.jsonl",
                         "{\"input_ids\": [104, 105, 0, 0], \"attention_mask\": [1, 1, 0, 0]}\n"
                         "{\"input_ids\": [106, 107]}\n")};
  config_.validation = {store("v.jsonl", "{\"text\": \"valid\"}\n")};
  const PreparedData data = prepare();
  EXPECT_EQ(text(data, *data.train), "hi<|endoftext|>jk");
  EXPECT_EQ(data.train->text_bytes(), 4u);
  EXPECT_EQ(data.train->documents(), 2u);
}

TEST_F(PrepareTest, ErrorsSayWhatToDo) {
  config_.train = {store("empty.txt", "")};
  EXPECT_NE(error(ErrorKind::kData).find("empty"), std::string::npos);
  config_.train = {store("one.txt", "a")};
  const std::string all_validates = error(ErrorKind::kData);
  EXPECT_NE(all_validates.find("of its 1 character data.train_fraction=0.95 leaves all"),
            std::string::npos)
      << all_validates;
  EXPECT_EQ(all_validates.find("truncate"), std::string::npos) << all_validates;
  config_.truncate = 0.5;
  const std::string none_kept = error(ErrorKind::kData);
  EXPECT_NE(none_kept.find("data.truncate=0.5 keeps none"), std::string::npos) << none_kept;
  EXPECT_NE(none_kept.find("raise data.truncate"), std::string::npos) << none_kept;
  config_.truncate = 1;
  config_.validation = {store("v.txt", "valid")};
  config_.train_fraction = 0;
  EXPECT_NE(error(ErrorKind::kData).find("single token"), std::string::npos);
  config_.train = {store("two.txt", "abc")};
  config_.validation = {store("v.txt", "v")};
  EXPECT_NE(error(ErrorKind::kData).find("two are the least"), std::string::npos);
  config_.validation = {store("v.txt", "valid")};
  config_.block_size = 16;
  const std::string block = error(ErrorKind::kData);
  EXPECT_NE(block.find("data.block_size"), std::string::npos) << block;
  EXPECT_NE(block.find("(" + config_.train[0] + ")"), std::string::npos) << block;
  config_.block_size = 0;
  config_.tokenizer = "hub:someone/model";
  EXPECT_NE(error(ErrorKind::kConfig).find("folder"), std::string::npos);
  config_.tokenizer = "bpe:x";
  error(ErrorKind::kConfig);
  config_.tokenizer = (folder_.path() / "none").string();
  error(ErrorKind::kIo);
  config_.tokenizer = "byte";
  config_.train = {"builtin", "two.txt"};
  error(ErrorKind::kConfig);
  config_.train = {(folder_.path() / "missing.txt").string()};
  EXPECT_NE(error(ErrorKind::kData).find("missing.txt"), std::string::npos);
}

TEST_F(PrepareTest, InvalidBytesNeedTheByteTokenizer) {
  config_.train = {store("a.txt", "caf\xE9 caf\xE9 caf\xE9 caf\xE9")};
  config_.validation = {store("v.txt", "valid")};
  EXPECT_EQ(prepare().train->size(), 19);
  for (const char* name : {"char", "bpe:257"}) {
    config_.tokenizer = name;
    EXPECT_NE(error(ErrorKind::kData).find("offset 3"), std::string::npos);
  }
}

TEST_F(PrepareTest, BuiltinNeedsNothingAndItsLossIsKnown) {
  config_.tokenizer = "bpe:512";
  const PreparedData data = prepare();
  EXPECT_TRUE(data.builtin_validation);
  EXPECT_GE(data.train->text_bytes(), kBuiltinTrainBytes);
  EXPECT_EQ(data.tokenizer->vocab_size(), 512);
  const std::int64_t targets = data.validation->size() - 1;
  const BuiltinText made = make_builtin_text(kBuiltinValidationSeed, kBuiltinValidationBytes);
  const double all = true_loss(data, targets).value();
  EXPECT_NEAR(all * static_cast<double>(targets), made.nats, 6) << "but for the first token";
  EXPECT_NEAR(true_loss(data, targets / 2).value(), all, 0.03);
  EXPECT_FALSE(true_loss(data, targets + 1));
  EXPECT_EQ(text(data, *data.validation), made.text);
  config_.validation = {store("v.txt", "valid")};
  EXPECT_FALSE(true_loss(prepare(), 2));
}

TEST_F(PrepareTest, AFolderIsPreparedOnceAndCanBeTrainedOn) {
  config_.train = {store("a.txt", std::string(1000, 'a') + " and more")};
  config_.tokenizer = "bpe:258";
  const Path out = folder_.path() / "out";
  const PreparedData first = prepare_folder(config_, out, *files_, log_);
  EXPECT_FALSE(first.from_cache);
  EXPECT_TRUE(prepare_folder(config_, out, *files_, log_).from_cache);
  DataConfig use;
  use.cache_dir = config_.cache_dir;
  for (const Path& entry : {out, out / "train.tok"}) {
    use.train = {entry.string()};
    const PreparedData data = prepare_dataset(use, *files_, log_);
    EXPECT_EQ(text(data, *data.train), text(first, *first.train));
    EXPECT_EQ(text(data, *data.validation), text(first, *first.validation));
    EXPECT_EQ(data.tokenizer->hash(), first.tokenizer->hash());
  }
  // A changed file is found, and made again.
  std::string bytes = files_->read(out / "validation.tok");
  bytes[20] ^= 1;
  auto file = files_->create(out / "validation.tok");
  file->write(bytes);
  file->close();
  EXPECT_THROW(prepare_dataset(use, *files_, log_), Error);
  EXPECT_FALSE(prepare_folder(config_, out, *files_, log_).from_cache);
  EXPECT_TRUE(said("prepared data is made again"));
  prepare_dataset(use, *files_, log_);
}

TEST_F(PrepareTest, ATokenFileWithoutItsTokenizerOrValidation) {
  config_.train = {store("a.txt", std::string(1000, 'a'))};
  const Path out = folder_.path() / "out";
  prepare_folder(config_, out, *files_, log_);
  files_->rename(out / "train.tok", folder_.path() / "alone.tok");
  config_.train = {(folder_.path() / "alone.tok").string()};
  const PreparedData data = prepare();
  EXPECT_EQ(data.train->size(), 902);
  EXPECT_EQ(data.validation->size(), 48);
  EXPECT_EQ(data.validation->text_bytes(), 48u);
  EXPECT_EQ(data.train->text_bytes(), 902u);
  config_.separator = "none";  // a byte tokenizer without end of text: another one
  EXPECT_NE(error(ErrorKind::kData).find("another tokenizer"), std::string::npos);
  config_.tokenizer = "bpe:300";
  error(ErrorKind::kConfig);
}

TEST_F(PrepareTest, ATokenizerFromElsewhereIsUsed) {
  config_.train = {store("a.txt", "some text that is long enough")};
  config_.tokenizer = "bpe:300";
  config_.train_fraction = 0.5;
  DataConfig other = config_;
  other.tokenizer = "char";
  const PreparedData by_char = prepare_dataset(other, *files_, log_);
  const PreparedData data = prepare_dataset(config_, *files_, log_, {}, by_char.tokenizer);
  EXPECT_EQ(data.tokenizer, by_char.tokenizer);
  EXPECT_EQ(data.key, by_char.key);
}

TEST_F(PrepareTest, HashesOfLargeFilesAreRememberedWhileTheyStay) {
  const Path path = store("large.txt", std::string(2'000'000, 'a'));
  FileHashes hashes(*files_, config_.cache_dir);
  const std::string first = hashes.hash(path);
  hashes.hash(path);
  EXPECT_EQ(hashes.remembered(), 0u) << "changed a moment ago: not yet trusted";
  std::this_thread::sleep_for(std::chrono::milliseconds(2100));
  hashes.hash(path);
  EXPECT_EQ(hashes.hash(path), first);
  EXPECT_EQ(hashes.remembered(), 1u);
  store("large.txt", std::string(2'000'000, 'b'));
  // Even where the time of the content is set back.
  const timespec old[2] = {{1'000'000'000, 0}, {1'000'000'000, 0}};
  ::utimensat(AT_FDCWD, path.c_str(), old, 0);
  EXPECT_NE(hashes.hash(path), first);
  EXPECT_EQ(hashes.remembered(), 1u);
}

TEST_F(PrepareTest, TheCacheLiesWhereTheEnvironmentSays) {
  EXPECT_EQ(data_cache_folder("/x/y"), "/x/y");
  ::setenv("TESSERA_CACHE", "/from/environment", 1);
  EXPECT_EQ(data_cache_folder(""), "/from/environment");
  ::unsetenv("TESSERA_CACHE");
  ::setenv("XDG_CACHE_HOME", "/xdg", 1);
  EXPECT_EQ(data_cache_folder(""), "/xdg/tessera");
  ::unsetenv("XDG_CACHE_HOME");
  EXPECT_TRUE(data_cache_folder("").string().ends_with("/.cache/tessera"));
}

// The counts of the shared data's README, which two other implementations agree on.
TEST_F(PrepareTest, KnownCountsOfRealText) {
  const Path shared = TESSERA_SHARED_DATA;
  if (!files_->exists(shared / "gpt2")) GTEST_SKIP() << "the shared data is not there";
  config_.tokenizer = (shared / "gpt2").string();
  config_.train = {(shared / "tinyshakespeare.txt").string()};
  config_.validation = {(shared / "wikitext2/wiki.valid.raw").string()};
  PreparedData data = prepare();
  EXPECT_EQ(data.train->size(), 338'025);
  EXPECT_EQ(data.validation->size(), 249'887);
  EXPECT_EQ(data.validation->text_bytes(), 1'146'846u);
  config_.train = {(shared / "wikitext2/wiki.train.tokens.gz").string()};
  data = prepare();
  EXPECT_EQ(data.train->size(), 2'448'382);
  EXPECT_EQ(data.train->text_bytes(), 10'797'148u);
  config_.train = {(shared / "sst2/dev.tsv").string()};
  data = prepare();
  EXPECT_EQ(data.train->documents(), 872u);
  config_.tokenizer = "char";
  config_.train = {(shared / "tinyshakespeare.txt").string()};
  config_.validation = {};
  config_.train_fraction = 0.9;
  data = prepare();
  EXPECT_EQ(data.tokenizer->vocab_size(), 65);
  EXPECT_EQ(data.train->size(), 1'003'854);
  EXPECT_EQ(data.validation->size(), 111'540);
}

}  // namespace
}  // namespace tessera
