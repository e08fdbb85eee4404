// `tessera generate` against transformers' and ONNX Runtime's continuations of the same weights.
#include <algorithm>
#include <filesystem>
#include <set>

#include "golden/tiny_lm_model.h"

namespace tessera::testing {
namespace {

using Ids = std::vector<std::int64_t>;

std::string joined(const Ids& ids) {
  std::string text;
  for (const std::int64_t id : ids) text += (text.empty() ? "" : ",") + std::to_string(id);
  return text;
}

class Generate : public TinyLmModel {};

TEST_F(Generate, GreedyContinuationsEqualTransformers) {
  std::vector<std::string> all = {"generate", "lm", "-t", "0", "-n", "16", "--ignore-eos"};
  for (const auto& expected : expected_["generations"]) {
    const std::string prompt = joined(expected["prompt"]);
    const std::vector<std::string> command = {"generate", "lm", "--prompt-ids", prompt,        "-t",
                                              "0",        "-n", "16",           "--ignore-eos"};
    const auto plain = lines(command);
    ASSERT_EQ(plain.size(), 1u);
    EXPECT_EQ(plain[0]["ids"], expected["greedy"]);
    EXPECT_EQ(plain[0]["finish_reason"], "length");
    EXPECT_EQ(plain[0].size(), 3u) << plain[0];
    const auto with = [&](std::initializer_list<std::string> more) {
      std::vector<std::string> longer = command;
      longer.insert(longer.end(), more);
      return lines(longer).at(0);
    };
    EXPECT_EQ(with({"--no-cache"})["ids"], expected["greedy"]);
    EXPECT_EQ(with({"--repetition-penalty", "1.4"})["ids"], expected["penalised"]);
    EXPECT_EQ(with({"--sliding", "-n", "48"})["ids"], expected["sliding"]);
    all.insert(all.end(), {"--prompt-ids", prompt});
  }
  const auto batch = lines(all);
  ASSERT_EQ(batch.size(), expected_["generations"].size());
  for (std::size_t i = 0; i < batch.size(); ++i) {
    EXPECT_EQ(batch[i]["ids"], expected_["generations"][i]["greedy"]);
    EXPECT_EQ(batch[i]["prompt"], i);
  }
}

TEST_F(Generate, PromptsMayBeTextOfAnyOrigin) {
  const auto& expected = expected_["generations"][0];  // "The"
  const std::vector<std::string> rest = {"-t", "0", "-n", "16", "--json"};
  folder_.write("prompt.txt", "The\n");
  const std::vector<std::pair<std::vector<std::string>, std::string>> origins = {
      {{"--prompt", "The"}, ""},
      {{"--prompt", "-"}, "The\n"},
      {{"--prompt-file", "prompt.txt"}, ""}};
  for (const auto& [origin, input] : origins) {
    std::vector<std::string> arguments = {"generate", "lm"};
    arguments.insert(arguments.end(), origin.begin(), origin.end());
    arguments.insert(arguments.end(), rest.begin(), rest.end());
    const RunResult result = run(arguments, input);
    ASSERT_EQ(result.exit_code, 0) << result.describe();
    const Json line = parse_json_lines(result.out).at(0);
    EXPECT_EQ(line["ids"], expected["greedy"]);
    EXPECT_EQ(line["text"], " line has no new");
  }
  // An empty text begins after an end of text.
  EXPECT_EQ(
      lines({"generate", "lm", "--prompt", "", "-t", "0", "-n", "16", "--ignore-eos"})[0]["ids"],
      expected_["generations"][2]["greedy"]);
  const RunResult plain = run({"generate", "lm", "--prompt", "The", "-t", "0", "-n", "9"});
  EXPECT_EQ(plain.out, "The line has\n") << plain.describe();
}

TEST_F(Generate, StopStringsAndTheEndOfTextEnd) {
  const auto stopped = lines(
      {"generate", "lm", "-p", "The", "-t", "0", "-n", "16", "--stop", "xyz", "--stop", "has no"});
  EXPECT_EQ(stopped[0]["text"], " line ");
  EXPECT_EQ(stopped[0]["ids"].size(), 12u);
  EXPECT_EQ(stopped[0]["finish_reason"], "stop");

  // Another token as the end of text: the byte 'h'.
  Json config = expected_["config"];
  config["eos_token_id"] = 104;
  folder_.write("lm/config.json", config.dump());
  const auto ended = lines({"generate", "lm", "-p", "The", "-t", "0", "-n", "16"});
  EXPECT_EQ(ended[0]["ids"], Json::parse("[32,108,105,110,101,32,104]"));
  EXPECT_EQ(ended[0]["text"], " line ");
  EXPECT_EQ(ended[0]["finish_reason"], "eos");
  EXPECT_EQ(lines({"generate", "lm", "-p", "The", "-t", "0", "-n", "16", "--ignore-eos"})[0]["ids"],
            expected_["generations"][0]["greedy"]);
}

TEST_F(Generate, SamplesRepeatByTheirSeed) {
  const std::vector<std::string> command = {"generate", "lm", "-p",        "a", "-n", "12",
                                            "--seed",   "5",  "--samples", "4", "-t", "1.5"};
  const auto first = lines(command);
  EXPECT_EQ(first, lines(command));
  std::set<std::string> texts;
  for (const Json& line : first) texts.insert(line["text"].get<std::string>());
  EXPECT_EQ(texts.size(), 4u);
  std::vector<std::string> other = command;
  other[7] = "6";
  EXPECT_NE(first, lines(other));
  // Filters that leave one token are greedy.
  const auto greedy = expected_["generations"][0]["greedy"];
  for (const std::vector<std::string>& filter :
       {std::vector<std::string>{"--top-k", "1"}, {"--top-p", "1e-9"}, {"--min-p", "1"}}) {
    std::vector<std::string> narrow = {"generate", "lm", "-p", "The", "-n", "16"};
    narrow.insert(narrow.end(), filter.begin(), filter.end());
    EXPECT_EQ(lines(narrow)[0]["ids"], greedy) << filter[0];
  }
}

TEST_F(Generate, LengthIsWhatTheContextHasRoomForUnlessNamed) {
  EXPECT_EQ(lines({"generate", "lm", "-p", "The", "--ignore-eos"})[0]["ids"].size(), 29u);
  expect_failure({"generate", "lm", "-p", "The", "-n", "31"}, 2, "context of 32");
  expect_failure({"generate", "lm", "-p", std::string(40, 'a')}, 2, "--sliding");
  EXPECT_EQ(lines({"generate", "lm", "-p", std::string(40, 'a'), "-n", "3", "--sliding",
                   "--ignore-eos"})[0]["ids"]
                .size(),
            3u);
}

TEST_F(Generate, WrongRequestsNameWhatIsWrong) {
  expect_failure({"generate", "nowhere", "-p", "a"}, 4, "nowhere");
  expect_failure({"generate", ".", "-p", "a"}, 4, "checkpoints/step_");
  expect_failure({"generate", "hub:gpt2", "-p", "a"}, 2, "cannot download");
  expect_failure({"generate", "lm", "--prompt-ids", "1,257"}, 2, "257");
  expect_failure({"generate", "lm", "-p", "a", "--top-p", "0"}, 2, "top-p");
  expect_failure({"generate", "lm", "-p", "a", "--stop", ""}, 2, "stop");
  std::filesystem::remove(folder_ / "lm/tessera_tokenizer.json");
  expect_failure({"generate", "lm", "-p", "a"}, 2, "--tokenizer");
  const auto ids = lines({"generate", "lm", "--prompt-ids", "84,104,101", "-t", "0", "-n", "16"});
  EXPECT_EQ(ids[0]["ids"], expected_["generations"][0]["greedy"]);
  EXPECT_TRUE(ids[0]["text"].is_null());
  flip_bit(folder_ / "lm/model.safetensors", 3);
  expect_failure({"generate", "lm", "--prompt-ids", "1"}, 4, "model.safetensors");
}

TEST_F(Generate, TextIsAlwaysValidUtf8) {
  // Half of the bytes that an untrained, hot model draws are no UTF-8: parse_json_lines checks.
  const auto all = lines({"generate", "lm", "-p", "a", "-t", "100", "--samples", "20", "-n", "24"});
  EXPECT_EQ(all.size(), 20u);
}

TEST_F(Generate, TinyGpt2ContinuesAsOnnxRuntimeExpects) {
  const Path tiny = Path(TESSERA_SHARED_DATA) / "gpt2_tiny";
  if (!std::filesystem::exists(tiny)) GTEST_SKIP() << tiny << " is not there";
  const Json expected = Json::parse(read_file(tiny / "expected.json"))["tiny_random_gpt2"];
  Json config = expected["config"];
  config["model_type"] = "gpt2";
  folder_.write("tiny/config.json", config.dump());
  folder_.write("tiny/model.safetensors", read_file(tiny / "tiny_random_gpt2.safetensors"));
  for (const Ids sequence : expected["greedy_max_length_10"]) {
    const Ids prompt(sequence.begin(), sequence.begin() + 4);
    for (const char* precision : {"auto", "f32"}) {
      const auto line = lines({"generate", "tiny", "--prompt-ids", joined(prompt), "-n", "6", "-t",
                               "0", "--precision", precision});
      EXPECT_EQ(line[0]["ids"].get<Ids>(), Ids(sequence.begin() + 4, sequence.end()));
    }
  }
}

}  // namespace
}  // namespace tessera::testing
