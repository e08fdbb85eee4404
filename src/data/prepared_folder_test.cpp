#include "data/prepared_folder.h"

#include <gtest/gtest.h>

#include <utility>

#include "base/error.h"
#include "base/temporary_directory.h"
#include "data/prepare.h"

namespace tessera {
namespace {

// The real one, whose change number `at` fails; where the process is killed so do all that follow.
class BreakingFileSystem final : public FileSystem {
 public:
  BreakingFileSystem(int at, bool killed) : left_(at), killed_(killed) {}
  bool broke() const { return left_ < 0; }

  std::unique_ptr<WritableFile> create(const Path& path) override {
    step(path);
    return real_->create(path);
  }
  void rename(const Path& from, const Path& to) override {
    step(to);
    real_->rename(from, to);
  }
  void sync_directory(const Path& path) override {
    step(path);
    real_->sync_directory(path);
  }
  void create_directories(const Path& path) override {
    step(path);
    real_->create_directories(path);
  }
  void remove_all(const Path& path) override {
    step(path);
    real_->remove_all(path);
  }
  std::string read(const Path& path) override { return real_->read(path); }
  bool exists(const Path& path) override { return real_->exists(path); }
  bool is_directory(const Path& path) override { return real_->is_directory(path); }
  std::uint64_t file_size(const Path& path) override { return real_->file_size(path); }
  std::vector<std::string> list(const Path& path) override { return real_->list(path); }
  std::uint64_t free_bytes(const Path& path) override { return real_->free_bytes(path); }
  std::unique_ptr<FileLock> try_lock(const Path& path) override { return real_->try_lock(path); }

 private:
  void step(const Path& path) {
    const bool now = left_ == 0;
    if (left_ >= 0) --left_;
    if (now || (killed_ && left_ < 0)) {
      throw Error(ErrorKind::kIo, "no space left on device", path.string());
    }
  }

  std::unique_ptr<FileSystem> real_ = make_posix_file_system();
  int left_;
  bool killed_;
};

class PreparedFolderTest : public ::testing::Test {
 protected:
  std::string store(const std::string& name, std::string_view bytes) {
    auto file = files_->create(folder_.path() / name);
    file->write(bytes);
    file->close();
    return (folder_.path() / name).string();
  }
  DataConfig config(const std::string& train, const std::string& validation,
                    const std::string& tokenizer = "byte") {
    DataConfig config;
    config.cache_dir = (folder_.path() / "cache").string();
    config.train = {train};
    if (!validation.empty()) config.validation = {validation};
    config.tokenizer = tokenizer;
    return config;
  }
  // What training on `entry` sees: both texts, or the error.
  std::string seen(const Path& entry) {
    try {
      const PreparedData data = prepare_dataset(config(entry.string(), ""), *files_, log_);
      return text(data, *data.train) + "|" + text(data, *data.validation);
    } catch (const Error& error) {
      return error.what();
    }
  }
  static std::string text(const PreparedData& data, const TokenDataset& split) {
    std::string result;
    for (std::int64_t i = 0; i < split.size(); ++i) {
      result += data.tokenizer->token_bytes(static_cast<TokenId>(split.token(i)));
    }
    return result;
  }
  std::string failure(const DataConfig& config) {
    try {
      prepare_folder(config, out_, *files_, log_);
    } catch (const Error& error) {
      return error.what();
    }
    ADD_FAILURE() << "no error";
    return {};
  }
  static void expect_part(const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << "no '" << part << "' in: " << text;
  }
  std::string said() const {
    std::string all;
    for (const std::string& line : said_) all += line + "\n";
    return all;
  }

  using Names = std::vector<std::string>;
  const Names whole_{"prepare.json", "tokenizer", "train.tok", "validation.tok"};
  TemporaryDirectory folder_;
  Path out_ = folder_.path() / "out";
  std::unique_ptr<FileSystem> files_ = make_posix_file_system();
  Names said_;
  Log log_{LogLevel::kVerbose, [this](std::string_view line) { said_.emplace_back(line); }};
};

TEST_F(PreparedFolderTest, IsTheOldOrTheNewOrRefusedWhereverThePreparationBreaks) {
  const DataConfig before = config(store("a.txt", "old text"), store("av.txt", "old valid"));
  const DataConfig after = config(store("b.txt", "new text"), store("bv.txt", "new valid"), "char");
  const std::string old_seen = "old text|old valid", new_seen = "new text|new valid";
  int old_kept = 0, refused = 0;
  for (const bool killed : {false, true}) {
    for (int at = 0;; ++at) {
      files_->remove_all(out_);
      prepare_folder(before, out_, *files_, log_);
      BreakingFileSystem breaking(at, killed);
      bool failed = false;
      try {
        prepare_folder(after, out_, breaking, log_);
      } catch (const Error&) {
        failed = true;
      }
      const std::string found = seen(out_);
      if (found == old_seen) {
        ++old_kept;
      } else if (found != new_seen) {
        ++refused;
        expect_part(found, "not whole");
        expect_part(found, "`tessera prepare`");
        EXPECT_TRUE(failed);
      }
      EXPECT_EQ(seen(out_ / "train.tok"), found);
      prepare_folder(after, out_, *files_, log_);
      EXPECT_EQ(seen(out_), new_seen) << at;
      EXPECT_EQ(files_->list(out_), whole_) << at;
      if (!breaking.broke()) break;
    }
  }
  EXPECT_GT(old_kept, 10);
  EXPECT_GT(refused, 2) << "no break fell between the renames";
}

TEST_F(PreparedFolderTest, AFailedPreparationChangesNothingAndSaysNothingOfReplacing) {
  prepare_folder(config(store("a.txt", "old text"), store("av.txt", "old valid")), out_, *files_,
                 log_);
  const std::string train = store("b.txt", "new text");
  const std::string broken = store("bv.jsonl", "{\"text\": \"new\"}\nno json\n");
  said_.clear();
  expect_part(failure(config(train, broken)), "bv.jsonl:2");
  EXPECT_EQ(seen(out_), "old text|old valid");
  EXPECT_EQ(files_->list(out_), whole_);
  EXPECT_EQ(said().find("replaced"), std::string::npos) << said();
  prepare_folder(config(train, store("bv.txt", "new valid")), out_, *files_, log_);
  expect_part(said(), "was replaced");
}

TEST_F(PreparedFolderTest, AFailedPreparationLeavesNoFolderOfItsOwn) {
  const DataConfig broken =
      config(store("a.txt", "text"), store("v.jsonl", "{\"text\": \"new\"}\nno json\n"));
  out_ = folder_.path() / "deep" / "er" / "out";
  failure(broken);
  EXPECT_FALSE(files_->exists(folder_.path() / "deep"));
  files_->create_directories(folder_.path() / "deep");
  failure(broken);
  EXPECT_EQ(files_->list(folder_.path() / "deep"), Names());
}

TEST_F(PreparedFolderTest, FilesOfAnotherPreparationAreNamed) {
  const PreparedFolder folder(out_);
  const auto prepared = [&] {
    files_->remove_all(out_);
    prepare_folder(config(store("a.txt", "some text"), store("v.txt", "valid")), out_, *files_,
                   log_);
  };
  const Path other = folder_.path() / "other";
  prepare_folder(config(store("b.txt", "other text"), store("w.txt", "other"), "char"), other,
                 *files_, log_);
  for (const Path& part : {folder.train, folder.validation, folder.tokenizer}) {
    prepared();
    files_->remove_all(part);
    std::filesystem::copy(other / part.filename(), part);
    const std::string mixed = seen(out_);
    expect_part(mixed, "not the one that prepare.json describes");
    expect_part(mixed, "(" + part.string() + ")");
    expect_part(mixed, "`tessera prepare` with --out " + out_.string());
    files_->remove_all(part);
    expect_part(seen(out_), "(" + part.string() + ")");
  }
  prepared();
  files_->remove_all(folder.summary);
  for (const Path& entry : {out_, folder.train}) expect_part(seen(entry), "no prepare.json");
  store("out/prepare.json", "[");
  expect_part(seen(out_), "prepare.json is damaged");
}

TEST_F(PreparedFolderTest, OnePreparationAtATime) {
  const DataConfig texts = config(store("a.txt", "some text"), store("v.txt", "valid"));
  files_->create_directories(out_ / ".preparing");
  store("out/.preparing/left.tok", "of a killed one");
  {
    const auto lock = files_->try_lock(out_ / ".preparing" / "lock");
    expect_part(failure(texts), "another `tessera prepare`");
  }
  prepare_folder(texts, out_, *files_, log_);
  EXPECT_EQ(files_->list(out_), whole_);
}

TEST_F(PreparedFolderTest, AdviceIsSpelledAsTheCommandHasIt) {
  const std::string text = store("a.txt", "some text that will do"), one = store("one.txt", "x");
  const auto advice = [&](const std::string& train, auto change, const std::string& part) {
    DataConfig changed = config(train, "");
    change(changed);
    const std::string message = failure(changed);
    expect_part(message, part);
    EXPECT_EQ(message.find("data."), std::string::npos) << message;
  };
  const auto nothing = [](DataConfig&) {};
  advice(store("a.bin", "x"), nothing, "Set --format to text");
  advice(store("a.jsonl", "{\"body\": \"x\"}\n"), nothing, "in --text-field.");
  advice(
      store("a.tsv", "a\tb\nx\ty\n"), [](DataConfig& c) { c.text_column = "c"; },
      "in --text-column");
  advice(store("a.csv", "text\na \"b\n"), nothing, "set --format=tsv");
  advice(
      text, [](DataConfig& c) { c.truncate = 0.001; }, "raise --truncate");
  advice(one, nothing, "name a file in --validation");
  advice(
      text, [](DataConfig& c) { c.train_fraction = 0.97; }, "name a file in --validation");
  advice(
      text, [](DataConfig& c) { c.tokenizer = "bpe:x"; }, "--tokenizer=bpe:8192");
  advice(
      store("latin.txt", "caf\xE9 and more of it"), [](DataConfig& c) { c.tokenizer = "char"; },
      "--tokenizer=byte");
  advice(store("t.tok", "x"), nothing, "Give the text that it was made of");
  EXPECT_FALSE(files_->exists(out_));
  prepare_folder(config(text, ""), out_, *files_, log_);
  expect_part(said(), "no --validation: the last 5 % of the text validate (--train-fraction)");
  advice(out_.string(), nothing, "the folder holds prepared tokens");
}

}  // namespace
}  // namespace tessera
