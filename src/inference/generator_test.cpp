#include "inference/generator.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/temporary_directory.h"
#include "model/causal_lm.h"
#include "model/gpt2.h"
#include "model/pretrained.h"
#include "tokenizer/byte_tokenizer.h"

namespace tessera {
namespace {

using Ids = std::vector<std::int64_t>;

// A model in memory with everything that generation needs.
struct TestModel {
  // One thread: these products are too small to share.
  explicit TestModel(const Gpt2Shape& shape_, at::ScalarType dtype = at::kFloat)
      : shape(shape_),
        chain(make_gpt2(shape)),
        communicator(make_single_process_communicator()),
        executor(chain, objective, nullptr, one_process(*communicator),
                 {.compute_dtype = dtype, .clip = {}, .loss_scale = {}, .train = false}) {
    at::set_num_threads(1);
    model.executor = &executor;
    model.cache_shape = {shape.n_layer, shape.n_head, shape.head_size(), dtype, at::kCPU};
    model.n_positions = shape.n_positions;
    model.vocab_size = shape.vocab_size;
  }

  at::Tensor master(const std::string& name) {
    for (FlatUnit& unit : executor.units()) {
      if (at::Tensor tensor = unit.master(name); tensor.defined()) return tensor;
    }
    return {};
  }

  Gpt2Shape shape;
  Chain chain;
  CausalLmObjective objective;
  std::unique_ptr<Communicator> communicator;
  Executor executor;
  GenerationModel model;
};

// Random weights, large enough that tokens are far from equally likely; bytes as tokens.
class Generate : public ::testing::Test {
 protected:
  static Gpt2Shape small_shape() {
    Gpt2Shape shape;
    shape.n_layer = 2;
    shape.n_head = 2;
    shape.n_embd = 16;
    shape.n_positions = 48;
    shape.vocab_size = 257;
    shape.padded_vocab_size = 272;
    shape.init_std = 0.35;
    return shape;
  }

  void SetUp() override {
    for (FlatUnit& unit : tiny_.executor.units()) unit.initialise(11);
    // Padding that would always win, if it could be drawn.
    tiny_.master("transformer.wte.weight").narrow(0, 257, 15).fill_(100);
    tiny_.executor.weights_changed();
    tiny_.model.tokenizer = tokenizer_.get();
    tiny_.model.end_of_text = 256;
    options_.max_new_tokens = 16;
    options_.seed = 3;
  }

  std::vector<Generation> run(const std::vector<Ids>& prompts) {
    return generate(tiny_.model, prompts, options_);
  }
  Ids ids_of(const Ids& prompt) { return run({prompt}).front().ids; }

  // The definition, without padding, cache or batches.
  Ids plain_greedy(Ids sequence, std::int64_t count) {
    const at::NoGradGuard no_grad;
    Ids drawn;
    for (std::int64_t i = 0; i < count; ++i) {
      const std::size_t seen =
          std::min(sequence.size(), static_cast<std::size_t>(tiny_.shape.n_positions));
      BatchContext context;
      context.ids = at::empty({1, static_cast<std::int64_t>(seen)}, at::kLong);
      std::copy(sequence.end() - static_cast<std::ptrdiff_t>(seen), sequence.end(),
                context.ids.data_ptr<std::int64_t>());
      context.mode = Mode::kEvaluate;
      const at::Tensor hidden = tiny_.executor.hidden(context);
      const at::Tensor logits = tiny_.chain.head().logits(hidden.select(1, hidden.size(1) - 1));
      drawn.push_back(logits.argmax(1).item<std::int64_t>());
      sequence.push_back(drawn.back());
    }
    return drawn;
  }

  std::unique_ptr<Tokenizer> tokenizer_ = make_byte_tokenizer(EndOfText::kAdded);
  TestModel tiny_{small_shape()};
  GenerationOptions options_;
};

const std::vector<Ids> kPrompts = {{84, 104, 101}, {7}, {65, 66, 67, 68, 69, 70, 71, 72, 73}};

TEST_F(Generate, GreedyEqualsThePlainDefinition) {
  options_.sampling.temperature = 0;
  options_.end_of_text = AtEndOfText::kGoOn;
  for (const auto caching : {Decoder::Caching::kOn, Decoder::Caching::kOff}) {
    options_.caching = caching;
    const std::vector<Generation> batch = run(kPrompts);
    for (std::size_t i = 0; i < kPrompts.size(); ++i) {
      const Ids expected = plain_greedy(kPrompts[i], options_.max_new_tokens);
      EXPECT_EQ(batch[i].ids, expected) << i;
      EXPECT_EQ(ids_of(kPrompts[i]), expected) << i;
    }
  }
}

TEST_F(Generate, SamplesDependOnSeedAndNumberNotOnTheBatch) {
  options_.sampling = {.temperature = 0.9, .top_k = 50, .top_p = 0.95};
  std::vector<Ids> alone;
  for (const Ids& prompt : kPrompts) alone.push_back(ids_of(prompt));
  options_.samples = 3;
  for (const auto caching : {Decoder::Caching::kOn, Decoder::Caching::kOff}) {
    options_.caching = caching;
    for (const std::int64_t batch_rows : {1, 4, 16}) {
      options_.batch_rows = batch_rows;
      const std::vector<Generation> all = run(kPrompts);
      ASSERT_EQ(all.size(), 9u);
      for (std::size_t i = 0; i < all.size(); ++i) {
        EXPECT_EQ(all[i].prompt, i / 3);
        EXPECT_EQ(all[i].sample, static_cast<std::int64_t>(i % 3));
        if (i % 3 == 0) {
          EXPECT_EQ(all[i].ids, alone[i / 3]) << batch_rows;
        }
      }
      EXPECT_NE(all[0].ids, all[1].ids);
      EXPECT_NE(all[1].ids, all[2].ids);
    }
  }
  options_.samples = 1;
  options_.seed = 4;
  EXPECT_NE(ids_of(kPrompts[0]), alone[0]);
}

TEST_F(Generate, ContinuingFromTheMiddleGivesTheSameTokens) {
  options_.end_of_text = AtEndOfText::kGoOn;
  const Ids whole = ids_of(kPrompts[0]);
  Ids prompt = kPrompts[0];
  prompt.insert(prompt.end(), whole.begin(), whole.begin() + 6);
  options_.max_new_tokens = 10;
  EXPECT_EQ(ids_of(prompt), Ids(whole.begin() + 6, whole.end()));
}

TEST_F(Generate, RowsThatEndEarlyLeaveTheOthersUnchanged) {
  options_.max_new_tokens = 30;
  options_.end_of_text = AtEndOfText::kGoOn;
  std::vector<Ids> full;
  for (const Ids& prompt : kPrompts) full.push_back(ids_of(prompt));
  // Each row ends at another token: stop at the byte that is first drawn there.
  options_.stop = {
      std::string(1, static_cast<char>(full[2][4])),
  };
  const std::vector<Generation> batch = run(kPrompts);
  for (std::size_t i = 0; i < kPrompts.size(); ++i) {
    const auto stop = std::find(full[i].begin(), full[i].end(), full[2][4]);
    EXPECT_EQ(batch[i].ids, Ids(full[i].begin(), std::min(stop + 1, full[i].end()))) << i;
  }
  EXPECT_LE(batch[2].ids.size(), 5u);
  EXPECT_EQ(batch[2].finish_reason, FinishReason::kStop);
}

TEST_F(Generate, EndOfTextEndsUnlessIgnored) {
  options_.sampling.temperature = 0;
  options_.end_of_text = AtEndOfText::kGoOn;
  const Generation all = run({kPrompts[0]}).front();
  EXPECT_EQ(all.ids.size(), 16u);
  EXPECT_EQ(all.finish_reason, FinishReason::kLength);
  tiny_.model.end_of_text = all.ids[3];
  EXPECT_EQ(ids_of(kPrompts[0]), all.ids);
  options_.end_of_text = AtEndOfText::kStop;
  const auto first = std::find(all.ids.begin(), all.ids.end(), all.ids[3]);
  const Generation cut = run({kPrompts[0]}).front();
  EXPECT_EQ(cut.ids, Ids(all.ids.begin(), first + 1));  // the end of text itself included
  EXPECT_EQ(cut.finish_reason, FinishReason::kEos);
  const std::vector<TokenId> shown(cut.ids.begin(), cut.ids.end() - 1);
  EXPECT_EQ(cut.text.find("<|endoftext|>"), std::string::npos);
}

TEST_F(Generate, TextIsValidAndComesInPiecesThatMakeItUp) {
  options_.max_new_tokens = 40;  // random bytes: mostly invalid UTF-8
  options_.samples = 4;
  std::map<std::int64_t, std::string> shown;
  const std::vector<Generation> all =
      generate(tiny_.model, {kPrompts[0]}, options_,
               [&](std::size_t prompt, std::int64_t sample, std::string_view piece) {
                 EXPECT_EQ(prompt, 0u);
                 EXPECT_NO_THROW((void)nlohmann::json(piece).dump());  // throws on broken UTF-8
                 shown[sample] += piece;
               });
  for (const Generation& one : all) {
    EXPECT_EQ(one.text, shown[one.sample]);
    EXPECT_FALSE(one.text.empty());
  }
}

TEST_F(Generate, StopStringsCutAcrossTokensAndAreNeverShown) {
  options_.sampling.temperature = 0;
  options_.end_of_text = AtEndOfText::kGoOn;
  // Only printable characters, so that text and bytes are the same.
  const at::Tensor embedding = tiny_.master("transformer.wte.weight");
  embedding.narrow(0, 0, 257).mul_(0.02);
  embedding.narrow(0, 97, 26).mul_(50);
  tiny_.executor.weights_changed();
  const Generation all = run({{97}}).front();
  ASSERT_EQ(all.text.size(), 16u) << all.text;
  options_.stop = {all.text.substr(5, 3), "no such text"};
  std::string shown;
  const Generation cut =
      generate(tiny_.model, {{97}}, options_,
               [&](std::size_t, std::int64_t, std::string_view piece) { shown += piece; })
          .front();
  const std::size_t at = all.text.find(options_.stop[0]);
  EXPECT_EQ(cut.text, all.text.substr(0, at));
  EXPECT_EQ(shown, cut.text);
  EXPECT_EQ(cut.ids.size(), at + 3);
  EXPECT_EQ(cut.finish_reason, FinishReason::kStop);
}

TEST_F(Generate, SlidingSeesTheLastTokensOfTheContext) {
  options_.sampling.temperature = 0;
  options_.end_of_text = AtEndOfText::kGoOn;
  options_.past_context = PastContext::kSlide;
  options_.max_new_tokens = 60;
  const Ids long_prompt(70, 33);
  const std::vector<Ids> prompts = {kPrompts[0], long_prompt, kPrompts[1]};
  for (const auto caching : {Decoder::Caching::kOn, Decoder::Caching::kOff}) {
    options_.caching = caching;
    const std::vector<Generation> batch = run(prompts);
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      EXPECT_EQ(batch[i].ids, plain_greedy(prompts[i], 60)) << i;
    }
  }
}

TEST_F(Generate, UndefinedIdsOfTheVocabularyAreNeverDrawn) {
  const std::unique_ptr<Tokenizer> bytes_only = make_byte_tokenizer(EndOfText::kNone);
  tiny_.model.tokenizer = bytes_only.get();  // 256 is no token of it
  tiny_.model.end_of_text.reset();
  tiny_.master("transformer.wte.weight").select(0, 256).fill_(100);
  tiny_.executor.weights_changed();
  options_.samples = 8;
  for (const Generation& one : run({kPrompts[0]})) {
    for (const std::int64_t id : one.ids) EXPECT_LT(id, 256);
  }
}

TEST_F(Generate, ComputesInOtherPrecisions) {
  TestModel half(small_shape(), at::kBFloat16);
  for (FlatUnit& unit : half.executor.units()) unit.initialise(11);
  half.executor.weights_changed();
  options_.max_new_tokens = 8;
  const std::vector<Generation> all = generate(half.model, kPrompts, options_);
  EXPECT_EQ(all[2].ids.size(), 8u);
  EXPECT_EQ(all[2].text, "");  // no tokenizer
}

std::string usage_error(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUsage) << error.what();
    return error.what();
  }
  return "nothing was thrown";
}

TEST_F(Generate, RequestsThatCannotBeMetAreErrors) {
  const auto fails_with = [&](const std::vector<Ids>& prompts, const std::string& text) {
    const std::string message = usage_error([&] { run(prompts); });
    EXPECT_NE(message.find(text), std::string::npos) << message;
  };
  fails_with({{}}, "no token");
  fails_with({{1}, {257}}, "id 257 is outside the model's vocabulary of 257 (prompt 2)");
  fails_with({{-1}}, "id -1");
  fails_with({Ids(60, 1)}, "context of 48");
  options_.max_new_tokens = 46;
  EXPECT_EQ(run({kPrompts[0]}).size(), 1u);  // 48 tokens read, the last one only drawn
  options_.max_new_tokens = 47;
  fails_with({kPrompts[0]}, "at most 46 new tokens");
  options_.max_new_tokens = std::numeric_limits<std::int64_t>::max();
  fails_with({kPrompts[0]}, "at most 46 new tokens");
  options_.max_new_tokens = -1;
  fails_with({kPrompts[0]}, "out of range");
  options_.max_new_tokens = 4;
  options_.samples = 0;
  fails_with({kPrompts[0]}, "out of range");
  options_.samples = 1;
  options_.stop = {""};
  fails_with({kPrompts[0]}, "stop string");
  tiny_.model.tokenizer = nullptr;
  options_.stop = {"a"};
  fails_with({kPrompts[0]}, "no tokenizer");
  options_.stop.clear();
  options_.sampling.top_p = 0;
  fails_with({kPrompts[0]}, "top-p");
}

TEST_F(Generate, NotFiniteWeightsAreANumericError) {
  tiny_.master("transformer.ln_f.weight").fill_(NAN);
  tiny_.executor.weights_changed();
  try {
    run({kPrompts[0]});
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kNumeric);
  }
}

TEST(GenerateTiny, GreedyEqualsTheOutputsOfOnnxRuntime) {
  const Path tiny = Path(TESSERA_SHARED_DATA) / "gpt2_tiny";
  if (!std::filesystem::exists(tiny)) GTEST_SKIP() << tiny << " is not there";
  std::ifstream file(tiny / "expected.json");
  const auto expected = nlohmann::json::parse(file)["tiny_random_gpt2"];
  Gpt2Shape shape = parse_hugging_face_config(expected["config"].dump(), "expected.json");
  TestModel random(shape);
  const TemporaryDirectory folder;
  std::filesystem::copy_file(tiny / "tiny_random_gpt2.safetensors",
                             folder.path() / "model.safetensors");
  read_weights(folder.path(), random.chain,
               [&](const std::string& name) { return random.master(name); });
  random.executor.weights_changed();

  const std::vector<Ids> sequences = expected["greedy_max_length_10"];
  std::vector<Ids> prompts;
  for (const Ids& sequence : sequences) {
    prompts.emplace_back(sequence.begin(), sequence.begin() + 4);
  }
  // The same sequences begun later: unequal prompts in one batch.
  prompts.emplace_back(sequences[0].begin(), sequences[0].begin() + 7);
  prompts.emplace_back(sequences[1].begin(), sequences[1].begin() + 5);
  GenerationOptions options;
  options.sampling.temperature = 0;
  options.max_new_tokens = 6;
  for (const auto caching : {Decoder::Caching::kOn, Decoder::Caching::kOff}) {
    options.caching = caching;
    const std::vector<Generation> batch = generate(random.model, prompts, options);
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      const Ids& sequence = sequences[i % 2];
      const Ids rest(sequence.begin() + static_cast<std::ptrdiff_t>(prompts[i].size()),
                     sequence.end());
      const Ids alone = generate(random.model, {prompts[i]}, options).front().ids;
      EXPECT_EQ(alone, batch[i].ids) << i;
      EXPECT_EQ(Ids(alone.begin(), alone.begin() + static_cast<std::ptrdiff_t>(rest.size())), rest)
          << i;
    }
  }
}

}  // namespace
}  // namespace tessera
