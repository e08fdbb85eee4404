// `tessera tokenizer` as scripts use it.
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "support/json_lines.h"
#include "support/run_folder.h"
#include "support/run_program.h"

namespace tessera::testing {
namespace {

class TokenizerCommandTest : public ::testing::Test {
 protected:
  RunResult run(std::vector<std::string> arguments, const std::string& input = "") const {
    RunOptions options;
    options.arguments = {"tokenizer"};
    options.arguments.insert(options.arguments.end(), arguments.begin(), arguments.end());
    options.working_folder = folder_.path();
    options.standard_input = input;
    return run_program(options);
  }
  // A tokenizer of the licence's text, with the special token <|user|>, in the folder "tok".
  void train() const {
    const RunResult result =
        run({"train", "--vocab-size", "600", "--out", "tok", "--special", "<|user|>", "--format",
             "text", std::string(TESSERA_SOURCE_DIR) + "/LICENSE"});
    ASSERT_EQ(result.exit_code, 0) << result.describe();
  }
  Json json(const std::vector<std::string>& arguments, const std::string& input = "") const {
    const RunResult result = run(arguments, input);
    EXPECT_EQ(result.exit_code, 0) << result.describe();
    const std::vector<Json> lines = parse_json_lines(result.out);
    return lines.empty() ? Json() : lines.front();
  }
  void expect_failure(const std::vector<std::string>& arguments, int code, const std::string& part,
                      const std::string& input = "") const {
    const RunResult result = run(arguments, input);
    EXPECT_EQ(result.exit_code, code) << result.describe();
    EXPECT_NE(result.last_error_line().find(part), std::string::npos) << result.describe();
    EXPECT_TRUE(result.last_error_line().starts_with("error: ")) << result.describe();
  }
  const RunFolder folder_;
};

TEST_F(TokenizerCommandTest, TrainedFilesAreCompleteAndTheirIdsFollowTheRule) {
  train();
  EXPECT_EQ(folder_.list("tok"),
            (std::vector<std::string>{"merges.txt", "special_tokens_map.json", "tokenizer.json",
                                      "tokenizer_config.json", "vocab.json"}));
  const Json vocabulary = Json::parse(folder_.read("tok/vocab.json"));
  EXPECT_EQ(vocabulary.size(), 600U);
  EXPECT_EQ(vocabulary["<|endoftext|>"], 599);
  EXPECT_EQ(vocabulary["<|user|>"], 598);
  EXPECT_EQ(vocabulary["!"], 0);
  const Json shown = json({"show", "tok", "--json"});
  EXPECT_EQ(shown["kind"], "bpe");
  EXPECT_EQ(shown["vocab_size"], 600);
  EXPECT_EQ(shown["end_of_text"], 599);
  EXPECT_EQ(shown["merges"], 342);
  EXPECT_EQ(shown["special_tokens"].size(), 2U);
}

TEST_F(TokenizerCommandTest, EncodeAndDecodeAreInverse) {
  train();
  const std::string text = "Any \xC3\xA9 text's  bytes \xFF\n<|endoftext|>";
  folder_.write("text", text);
  const Json from_file = json({"encode", "tok", "--file", "text", "--json"})["ids"];
  EXPECT_EQ(json({"encode", "tok", "--json"}, text)["ids"], from_file);
  const RunResult plain = run({"encode", "tok", "--file", "text"});
  std::string ids = from_file.dump();
  const RunResult decoded = run({"decode", "tok", "--ids", ids.substr(1, ids.size() - 2)});
  EXPECT_EQ(decoded.out, text) << decoded.describe();
  EXPECT_EQ(run({"decode", "tok"}, plain.out).out, text);
  EXPECT_EQ(run({"decode", "tok"}, "{\"ids\":" + ids + "}\n").out, text);
  EXPECT_EQ(json({"decode", "tok", "--json", "--ids", ids})["text"],
            "Any \xC3\xA9 text's  bytes \xEF\xBF\xBD\n<|endoftext|>");
  EXPECT_EQ(run({"decode", "tok", "--ids", " [65,\t66\n67 ,68]"}).out,
            run({"decode", "tok", "--ids", "65,66,67,68"}).out);
  EXPECT_EQ(json({"encode", "tok", "--text", "", "--json"})["ids"], Json::array());
}

TEST_F(TokenizerCommandTest, SpecialTokensAreTextUnlessAskedFor) {
  train();
  EXPECT_GT(json({"encode", "tok", "--text", "<|user|>", "--json"})["ids"].size(), 1U);
  EXPECT_EQ(
      json({"encode", "tok", "--text", "<|user|><|endoftext|>", "--special", "--json"})["ids"],
      Json({598, 599}));
}

TEST_F(TokenizerCommandTest, JsonLinesGiveALineEach) {
  train();
  folder_.write("texts.jsonl",
                "{\"text\": \"one\"}\n{\"id\": 7, \"text\": \"\"}\r\n{\"text\": \"\\u00e9\"}\n\n");
  const RunResult result = run({"encode", "tok", "--jsonl", "texts.jsonl", "--json"});
  const std::vector<Json> lines = parse_json_lines(result.out);
  ASSERT_EQ(lines.size(), 3U) << result.describe();
  EXPECT_EQ(lines[0], json({"encode", "tok", "--text", "one", "--json"}));
  EXPECT_EQ(lines[1]["ids"], Json::array());
  EXPECT_EQ(lines[2], json({"encode", "tok", "--text", "\xC3\xA9", "--json"}));
}

TEST_F(TokenizerCommandTest, FailuresHaveTheirExitCodeAndNameTheCause) {
  train();
  expect_failure({"encode", "nowhere", "--text", "a"}, 4, "nowhere");
  expect_failure({"encode", "tok", "--file", "missing.txt"}, 3, "missing.txt");
  expect_failure({"encode", "tok", "--text", "a", "--file", "b"}, 2, "exclude each other");
  expect_failure({"encode"}, 2, "");
  expect_failure({"decode", "tok", "--ids", "1,x"}, 2, "'x' is no token id");
  expect_failure({"decode", "tok", "--ids", "1,99999999999"}, 2, "is no token id");
  for (const char* ids : {"1,,2", "1, ,2", ",1", "1,2,", ","}) {
    expect_failure({"decode", "tok", "--ids", ids}, 2, "an id is missing");
  }
  expect_failure({"decode", "tok"}, 3, "an id is missing", "1 2,,3\n");
  expect_failure({"decode", "tok", "--ids", "600"}, 3, "ids 0 to 599");
  expect_failure({"decode", "tok"}, 3, "no list \"ids\"", "{\"ids\": 1}\n");
  expect_failure({"train", "--vocab-size", "256", "--out", "t"}, 2, "need 257", "text");
  expect_failure({"train", "--vocab-size", "300", "--out", "t"}, 3, "the text is empty");
  expect_failure({"train", "--vocab-size", "300", "--out", "t", "missing.txt"}, 3, "missing.txt");
  expect_failure({"train", "--out", "t"}, 2, "--vocab-size N", "text");
  expect_failure({"train", "--vocab-size", "300"}, 2, "--out DIR", "text");
  folder_.write("bad.jsonl", "{\"text\": \"a\"}\nno json\n");
  expect_failure({"encode", "tok", "--jsonl", "bad.jsonl"}, 3, "bad.jsonl:2");
  folder_.write("bad.jsonl", "{\"text\": 1}\n");
  expect_failure({"encode", "tok", "--jsonl", "bad.jsonl"}, 3, "bad.jsonl:1");
  std::filesystem::resize_file(folder_ / "tok/tokenizer.json", 1000);
  expect_failure({"show", "tok"}, 4, "tokenizer.json");
}

TEST_F(TokenizerCommandTest, ATooSmallTextGivesASmallerVocabularyAndSaysSo) {
  const RunResult result =
      run({"train", "--vocab-size", "5000", "--out", "small", "--json"}, "ab ab ab");
  EXPECT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_NE(result.err.find("warning: the vocabulary has 259 tokens, not 5000"), std::string::npos)
      << result.describe();
  EXPECT_EQ(parse_json_lines(result.out).front()["vocab_size"], 259);
  expect_failure({"train", "--vocab-size", "5000", "--out", "exact", "--exact"}, 3,
                 "Ask for 259 or less", "ab ab ab");
  EXPECT_FALSE(folder_.exists("exact"));
}

TEST_F(TokenizerCommandTest, CharacterAndByteTokenizers) {
  ASSERT_EQ(run({"train", "--kind", "char", "--out", "chars"}, "hello").exit_code, 0);
  EXPECT_EQ(json({"encode", "chars", "--text", "hole", "--json"})["ids"], Json({1, 3, 2, 0}));
  expect_failure({"encode", "chars", "--text", "help"}, 3, "U+0070 'p'");
  ASSERT_EQ(run({"train", "--kind", "byte", "--out", "bytes"}).exit_code, 0);
  EXPECT_EQ(json({"encode", "bytes", "--text", "a", "--json"})["ids"], Json({97}));
  EXPECT_EQ(json({"show", "bytes", "--json"})["end_of_text"], 256);
}

// "the cat sat on the mat, the cat sat"
constexpr char kGzip[] =
    "\037\213\010\000\000\000\000\000\002\003\053\311\110\125\110\116"
    "\054\121\050\006\342\374\074\205\022\040\067\067\261\104\007\314"
    "\200\212\003\000\247\015\300\012\043\000\000\000";
constexpr char kZstd[] =
    "\050\265\057\375\044\043\365\000\000\300\164\150\145\040\143\141"
    "\164\040\163\141\164\040\157\156\040\164\150\145\040\155\141\164"
    "\054\040\001\000\254\061\307\203\275\002\162";

TEST_F(TokenizerCommandTest, TrainsOnTheSourcesOfPrepare) {
  const std::string text = "the cat sat on the mat, the cat sat";
  const auto hash = [&](const std::string& source, std::vector<std::string> more = {}) {
    std::vector<std::string> arguments{"train", "--vocab-size", "262", "--out", "t", "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    if (!source.empty()) arguments.push_back(source);
    return json(arguments, source.empty() ? text : "").value("hash", "none");
  };
  const std::string expected = hash("");
  folder_.write("a.txt", text);
  folder_.write("a.txt.gz", std::string(kGzip, sizeof kGzip - 1));
  folder_.write("a.txt.zst", std::string(kZstd, sizeof kZstd - 1));
  folder_.write("a.jsonl", "{\"text\": \"" + text + "\"}\n");
  folder_.write("b.json", "{\"body\": \"" + text + "\"}\n");
  folder_.write("a.tsv", "id\tbody\n1\t" + text + "\n");
  folder_.write("a.bin", text);
  folder_.write("folder/deep/a.txt", text);
  folder_.write("folder/image.png", "no text");
  for (const char* source : {"a.txt", "a.txt.gz", "a.txt.zst", "a.jsonl", "folder", "a.t*t"}) {
    EXPECT_EQ(hash(source), expected) << source;
  }
  EXPECT_EQ(hash("b.json", {"--text-field", "body"}), expected);
  EXPECT_EQ(hash("a.tsv", {"--text-column", "body"}), expected);
  EXPECT_EQ(hash("a.bin", {"--format", "text"}), expected);
  const Json characters =
      json({"train", "--kind", "char", "--out", "c", "--json", "a.txt.gz", "a.jsonl"});
  EXPECT_EQ(characters["vocab_size"], 11 + 1);
  EXPECT_EQ(json({"train", "--vocab-size", "300", "--out", "b", "--json", "builtin"})["vocab_size"],
            300);
}

TEST_F(TokenizerCommandTest, TrainRefusesWhatPrepareRefuses) {
  const auto refused = [&](const std::vector<std::string>& more, int code, const std::string& part,
                           const std::string& input = "") {
    std::vector<std::string> arguments{"train", "--vocab-size", "260", "--out", "deep/t"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    expect_failure(arguments, code, part, input);
    EXPECT_FALSE(folder_.exists("deep")) << part;
  };
  const std::string binary("ab\0cd", 5);
  folder_.write("binary.txt", binary);
  folder_.write("a.png", "text");
  folder_.write("latin.txt", "caf\xE9 au lait");
  folder_.write("bad.jsonl", "{\"text\": \"a\"}\nno json\n");
  folder_.write("body.jsonl", "{\"body\": \"a\"}\n");
  folder_.write("ids.jsonl", "{\"input_ids\": [1]}\n");
  folder_.write("a.tok", "tokens");
  folder_.write("prepared/prepare.json", "{}");
  folder_.write("broken.txt.gz", "text");
  refused({"binary.txt"}, 3, "byte offset 2");
  refused({}, 3, "byte offset 2", binary);
  refused({"a.png"}, 2, "Set --format to text");
  refused({"latin.txt"}, 3, "--kind=byte");
  refused({"bad.jsonl"}, 3, "bad.jsonl:2");
  refused({"body.jsonl"}, 3, "in --text-field.");
  refused({"ids.jsonl"}, 3, "ids.jsonl:1");
  refused({"a.tok"}, 3, "a.tok");
  refused({"prepared"}, 2, "prepared tokens");
  refused({"broken.txt.gz"}, 3, "not a gzip archive");
  refused({"--format", "jsonl", "-"}, 2, "read as plain text", "{}");
}

// Its folder goes too, and those above it, where the tokenizer cannot be written.
TEST_F(TokenizerCommandTest, AFullDiskLeavesNoEmptyFolder) {
  RunOptions options;
  options.arguments = {"tokenizer", "train", "--vocab-size", "260", "--out", "deep/t"};
  options.working_folder = folder_.path();
  options.standard_input = "ab ab ab ab";
  options.file_size_bytes = 100;
  const RunResult result = run_program(options);
  EXPECT_EQ(result.exit_code, 4) << result.describe();
  EXPECT_FALSE(folder_.exists("deep"));
}

TEST_F(TokenizerCommandTest, Gpt2sFilesLoadAtOnce) {
  const std::string gpt2 = std::string(TESSERA_SHARED_DATA) + "/gpt2";
  if (!std::filesystem::exists(gpt2)) GTEST_SKIP() << "the shared data are not at " << gpt2;
  const RunResult result = run({"encode", gpt2, "--text", "Hello world", "--json", "--timing"});
  EXPECT_EQ(result.out, "{\"ids\":[15496,995]}\n") << result.describe();
  EXPECT_NE(result.err.find("encoded 11 bytes to 2 tokens in "), std::string::npos)
      << result.describe();
  EXPECT_LT(result.elapsed, std::chrono::seconds(5));
}

}  // namespace
}  // namespace tessera::testing
