// `tessera evaluate` against losses that transformers gives, one forward for each target.
#include <cmath>

#include "golden/tiny_lm_model.h"

namespace tessera::testing {
namespace {

class Evaluate : public TinyLmModel {
 protected:
  void SetUp() override {
    TinyLmModel::SetUp();
    if (IsSkipped()) return;
    folder_.write("text.txt", expected_["text"].get<std::string>());
  }
};

void expect_near(const Json& actual, const Json& expected, const std::string& key) {
  const double value = expected[key];
  EXPECT_NEAR(actual.at(key).get<double>(), value, 1e-5 * std::max(value, 1e-3)) << key;
}

TEST_F(Evaluate, EveryStrideGivesTransformersLoss) {
  for (const Json& expected : expected_["evaluations"]) {
    const auto result = lines({"evaluate", "lm", "--data", "text.txt", "--block-size",
                               expected["block_size"].dump(), "--stride", expected["stride"].dump(),
                               "--word-perplexity"});
    ASSERT_EQ(result.size(), 1u);
    for (const char* key : {"loss", "perplexity", "bits_per_byte", "accuracy"}) {
      expect_near(result[0], expected, key);
    }
    EXPECT_EQ(result[0]["tokens"], expected["tokens"]);
    EXPECT_NEAR(std::log(result[0]["word_perplexity"].get<double>()),
                std::log(expected["word_perplexity"].get<double>()), 1e-4);
  }
  const auto by_default = lines({"evaluate", "lm", "--data", "text.txt"});
  expect_near(by_default[0], expected_["evaluations"][0], "loss");
  EXPECT_EQ(by_default[0].size(), 5u) << by_default[0];
}

TEST_F(Evaluate, LastWordsAreScored) {
  std::string passages;
  for (const Json& passage : expected_["passages"]) {
    passages += Json{{"text", passage}}.dump() + "\n";
  }
  folder_.write("passages.jsonl", passages);
  const auto result = lines(
      {"evaluate", "lm", "--task", "lambada", "--data", "passages.jsonl", "--batch-size", "3"});
  for (const char* key : {"accuracy", "perplexity", "loss", "passages", "tokens"}) {
    expect_near(result.at(0), expected_["last_words"], key);
  }
}

TEST_F(Evaluate, OfAPreparedFolderTheValidationPartIsEvaluated) {
  folder_.write("train.txt", "something else to train on");
  const RunResult prepared =
      run({"prepare", "train.txt", "--validation", "text.txt", "--out", "prepared"});
  ASSERT_EQ(prepared.exit_code, 0) << prepared.describe();
  const auto result = lines({"evaluate", "lm", "--data", "prepared"});
  expect_near(result.at(0), expected_["evaluations"][0], "loss");
  EXPECT_EQ(result[0]["tokens"], expected_["evaluations"][0]["tokens"]);
  expect_failure({"evaluate", "lm", "--data", "prepared", "--task", "lambada"}, 3,
                 "prepared/validation.tok");
  const RunResult other = run({"prepare", "train.txt", "--validation", "text.txt", "--separator",
                               "none", "--out", "other"});
  ASSERT_EQ(other.exit_code, 0) << other.describe();
  expect_failure({"evaluate", "lm", "--data", "other"}, 3, "other/validation.tok");
}

TEST_F(Evaluate, FormatsAndTheirFieldsAreOptions) {
  folder_.write("a.tsv", "id\tbody\n1\tthe cat sat\n");
  folder_.write("a.jsonl", "{\"body\": \"the cat sat\"}\n");
  folder_.write("a.bin", "the cat sat");
  const auto loss = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"evaluate", "lm", "--data"});
    return lines(more).at(0)["loss"];
  };
  const Json expected = loss({"a.bin", "--format", "text"});
  EXPECT_EQ(loss({"a.tsv", "--text-column", "body"}), expected);
  EXPECT_EQ(loss({"a.jsonl", "--text-field", "body"}), expected);
  expect_failure({"evaluate", "lm", "--data", "a.bin"}, 2, "Set --format to text");
  expect_failure({"evaluate", "lm", "--data", "a.jsonl"}, 3, "in --text-field.");
}

TEST_F(Evaluate, WithoutJsonThereIsALineForEachValue) {
  const RunResult result = run({"evaluate", "lm", "--data", "text.txt"});
  EXPECT_EQ(result.exit_code, 0) << result.describe();
  for (const char* name : {"loss ", "perplexity ", "bits_per_byte ", "accuracy ", "tokens "}) {
    EXPECT_NE(result.out.find(name), std::string::npos) << result.out;
  }
}

TEST_F(Evaluate, WrongRequestsNameWhatIsWrong) {
  expect_failure({"evaluate", "lm", "--data", "none.txt"}, 3, "none.txt");
  expect_failure({"evaluate", "nowhere", "--data", "text.txt"}, 4, "nowhere");
  expect_failure({"evaluate", "lm", "--data", "text.txt", "--block-size", "33"}, 2,
                 "context of 32");
  expect_failure({"evaluate", "lm", "--data", "text.txt", "--block-size", "8", "--stride", "9"}, 2,
                 "left out");
  folder_.write("short.txt", "x");
  expect_failure({"evaluate", "lm", "--data", "short.txt"}, 3, "nothing to predict");
  folder_.write("word.jsonl", R"({"text": "word"})");
  expect_failure({"evaluate", "lm", "--data", "word.jsonl", "--task", "lambada"}, 3, "passage 1");
}

}  // namespace
}  // namespace tessera::testing
