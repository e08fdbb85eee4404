#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "train/evaluate_lambada.h"
#include "train/evaluate_loss.h"
#include "train/evaluate_text.h"
#include "train/load_model.h"
#include "train/tiny_lm_folder.h"

namespace tessera {
namespace {

class Evaluate : public ::testing::Test {
 protected:
  void SetUp() override { model_ = load_model({.model = folder_.path().string()}, log_); }

  EvaluationText read(const std::vector<Path>& data) {
    return read_evaluation_text({.paths = data}, *model_->tokenizer, log_);
  }
  EvaluationSums evaluate(const EvaluationText& text, const WindowPlan& plan, std::int64_t rows) {
    return evaluate_documents(*model_->executor, at::kCPU, text, plan, rows, {});
  }

  TinyLmFolder folder_;
  Log log_{LogLevel::kQuiet, [](std::string_view) {}};
  std::unique_ptr<LoadedModel> model_;
};

TEST_F(Evaluate, EveryStrideGivesTheLossOfOneForwardForEachTarget) {
  const std::string bytes = folder_.expected["text"];
  const EvaluationText text = read({folder_.write("text.txt", bytes)});
  ASSERT_EQ(text.documents.size(), 1u);
  EXPECT_EQ(text.bytes, bytes.size());
  for (const auto& expected : folder_.expected["evaluations"]) {
    const WindowPlan plan{expected["block_size"], expected["stride"]};
    for (const std::int64_t rows : {1, 3, 64}) {
      const EvaluationSums sums = evaluate(text, plan, rows);
      const double loss = expected["loss"], accuracy = expected["accuracy"];
      EXPECT_EQ(sums.weight, expected["tokens"].get<double>());
      EXPECT_NEAR(sums.loss / sums.weight, loss, 1e-5 * loss) << expected;
      EXPECT_NEAR(sums.correct / sums.weight, accuracy, 1e-12) << expected;
      const double words = expected["word_perplexity"];
      EXPECT_NEAR(std::log(words), sums.loss / static_cast<double>(text.words), 1e-4);
    }
  }
}

TEST_F(Evaluate, DocumentsDoNotSeeEachOther) {
  const std::string first = folder_.expected["text"];
  const EvaluationText one = read({folder_.write("1.txt", first)});
  const EvaluationText two = read({folder_.write("2.txt", "the cat sat")});
  const EvaluationText both =
      read({folder_.path() / "1.txt", folder_.write("e.txt", "x"), folder_.path() / "2.txt"});
  const WindowPlan plan{20, 7};
  const EvaluationSums a = evaluate(one, plan, 2), b = evaluate(two, plan, 2),
                       sum = evaluate(both, plan, 3);
  EXPECT_EQ(sum.weight, a.weight + b.weight);
  EXPECT_EQ(sum.correct, a.correct + b.correct);
  EXPECT_NEAR(sum.loss, a.loss + b.loss, 1e-5 * sum.loss);
  EXPECT_EQ(both.bytes, first.size() + 11 + 1);
}

TEST_F(Evaluate, JsonLinesGiveTextOrIds) {
  const Path text = folder_.write("a.jsonl", "{\"text\": \"abcd\"}\n{\"text\": \"the cat\"}\n");
  const Path ids = folder_.write("b.jsonl", "{\"input_ids\": [97, 98, 99, 100]}\n");
  const EvaluationText of_text = read({text});
  EXPECT_EQ(of_text.documents.size(), 2u);
  EXPECT_TRUE(of_text.counts_known);
  const EvaluationText of_ids = read({ids});
  EXPECT_EQ(of_ids.documents[0], of_text.documents[0]);
  EXPECT_FALSE(of_ids.counts_known);
  EXPECT_THROW(read({folder_.write("c.jsonl", "{\"input_ids\": [1, 257]}\n")}), Error);
}

TEST_F(Evaluate, TextWithNothingToPredictIsADataError) {
  for (const char* text : {"x", ""}) {
    try {
      read({folder_.write("short.txt", text)});
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kData) << error.what();
    }
  }
}

TEST_F(Evaluate, WordsAreSplitAtWhiteSpaceAndEachLineIsOneMore) {
  EXPECT_EQ(count_words(""), 0u);
  EXPECT_EQ(count_words("a"), 2u);
  EXPECT_EQ(count_words("a\n"), 2u);
  EXPECT_EQ(count_words(" a  b \n \n c\td"), 4u + 3u);
  const Path wikitext = Path(TESSERA_SHARED_DATA) / "wikitext2" / "wiki.test.raw";
  if (!folder_.files->exists(wikitext)) GTEST_SKIP() << wikitext << " is not there";
  EXPECT_EQ(count_words(folder_.files->read(wikitext)), 245569u);
}

TEST_F(Evaluate, LastWordsScoreAsTransformersScoresThem) {
  const auto& expected = folder_.expected["last_words"];
  const std::vector<std::string> passages = folder_.expected["passages"];
  for (const std::int64_t rows : {1, 2, 8}) {
    const LambadaScores scores =
        evaluate_lambada(*model_->executor, at::kCPU, passages, *model_->tokenizer, 32, rows, {});
    EXPECT_EQ(scores.passages, expected["passages"].get<std::int64_t>());
    EXPECT_EQ(scores.tokens, expected["tokens"].get<std::int64_t>());
    const double loss = expected["loss"], accuracy = expected["accuracy"];
    EXPECT_NEAR(scores.nats / static_cast<double>(scores.tokens), loss, 1e-5 * loss);
    EXPECT_EQ(static_cast<double>(scores.correct) / 4, accuracy);
  }
}

TEST_F(Evaluate, EveryTokenOfTheLastWordMustBeRight) {
  const auto correct = [&](const std::string& passage) {
    return evaluate_lambada(*model_->executor, at::kCPU, {passage}, *model_->tokenizer, 32, 1, {})
        .correct;
  };
  EXPECT_EQ(correct("The line"), 1);  // what the model itself says after "The"
  // A wrong letter, then what the model says after it: only the end of the word is right.
  int tried = 0;
  for (char letter = 'a'; letter <= 'z'; ++letter) {
    if (letter == 'l') continue;
    const std::string begun = std::string("The ") + letter;
    GenerationOptions greedy;
    greedy.sampling.temperature = 0;
    greedy.max_new_tokens = 1;
    const std::string next =
        generate(model_->generation_model(),
                 {std::vector<std::int64_t>(begun.begin(), begun.end())}, greedy)
            .front()
            .text;
    if (next.size() != 1 || next == " ") continue;
    EXPECT_EQ(correct(begun + next), 0) << begun + next;
    ++tried;
  }
  EXPECT_GT(tried, 5);
}

TEST_F(Evaluate, PassagesWithoutALastWordAreDataErrors) {
  const std::string long_word(40, 'x');
  for (const std::string& passage : {std::string("oneword"), std::string(" word"),
                                     std::string("ends with a space "), "a " + long_word}) {
    try {
      evaluate_lambada(*model_->executor, at::kCPU, {"fine here", passage}, *model_->tokenizer, 32,
                       4, {});
      ADD_FAILURE() << passage;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kData);
      EXPECT_EQ(error.where(), "passage 2");
    }
  }
}

}  // namespace
}  // namespace tessera
