#include "config/fields.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "config/checks.h"
#include "config/describe.h"
#include "config/format.h"
#include "config/utf8.h"

namespace tessera {
namespace {

TEST(Fields, AreUniqueGroupedAndWithinTheirOwnRules) {
  std::set<std::string_view> keys, closed_groups;
  std::string_view group;
  for (const Field& field : fields()) {
    EXPECT_TRUE(keys.insert(field.key).second) << field.key;
    EXPECT_EQ(find_field(field.key), &field);
    EXPECT_FALSE(field.doc.empty()) << field.key;
    if (field.group() != group) {
      EXPECT_TRUE(closed_groups.insert(field.group()).second) << field.key << " is apart";
      group = field.group();
    }
    const FieldValue value = field.get(Config());
    if (const auto* whole = std::get_if<std::int64_t>(&value)) {
      if (field.type == FieldType::kChoice) {
        EXPECT_LT(static_cast<std::size_t>(*whole), field.choices.size()) << field.key;
      } else {
        EXPECT_LE(field.max, 9e15) << field.key << " would not be exact";
        EXPECT_GE(static_cast<double>(*whole), field.min) << field.key;
      }
    }
    if (const auto* text = std::get_if<std::string>(&value); text && field.check) {
      EXPECT_EQ(text->empty() && field.key != "data.tokenizer" ? "" : field.check(*text), "")
          << field.key;
    }
  }
  EXPECT_EQ(closed_groups.size(), field_groups().size());
}

TEST(Fields, OtherNamesLeadToTheSetting) {
  for (const Field& field : fields()) {
    if (field.alias.empty()) continue;
    EXPECT_EQ(find_field(field.alias), &field);
    EXPECT_EQ(field.alias.substr(0, field.alias.find('.')), field.group());
  }
  for (const Field& field : fields()) {
    for (const Synonym& synonym : field.synonyms) {
      EXPECT_EQ(std::ranges::count(field.choices, synonym.written), 0) << field.key;
      if (field.type != FieldType::kChoice) continue;
      EXPECT_EQ(std::ranges::count(field.choices, synonym.meant), 1) << synonym.meant;
    }
  }
}

TEST(Fields, SetWhatTheyGet) {
  for (const Field& field : fields()) {
    Config config;
    FieldValue value = field.get(config);
    if (auto* flag = std::get_if<bool>(&value)) *flag = !*flag;
    if (auto* whole = std::get_if<std::int64_t>(&value)) *whole = field.choices.size() == 1 ? 0 : 1;
    if (auto* text = std::get_if<std::string>(&value)) *text = "changed";
    if (auto* number = std::get_if<double>(&value)) *number = 0.25;
    if (auto* list = std::get_if<std::vector<std::string>>(&value)) *list = {"a", "b"};
    if (auto* pair = std::get_if<std::array<double, 2>>(&value)) *pair = {0.25, 0.75};
    if (auto* interval = std::get_if<Interval>(&value)) *interval = {3, Interval::Unit::kEpochs};
    if (auto* which = std::get_if<ActivationCheckpointing>(&value)) {
      *which = {ActivationCheckpointing::Kind::kBlocks, 3};
    }
    field.set(config, value);
    EXPECT_EQ(field.get(config), value) << field.key;
  }
}

TEST(Fields, ResumePoliciesFollowWhatARunIs) {
  for (const char* key : {"model.n_layer", "data.block_size", "run.seed", "data.sampling",
                          "data.stride", "train.global_batch_size"}) {
    EXPECT_EQ(find_field(key)->resume, ResumePolicy::kRefuse) << key;
  }
  for (const char* key :
       {"optim.lr", "optim.schedule", "optim.weight_decay", "run.threads", "precision.compute",
        "run.device", "optim.decay_steps", "parallel.strategy", "parallel.shard_degree",
        "parallel.wrap", "parallel.reduce", "parallel.cpu_offload"}) {
    EXPECT_EQ(find_field(key)->resume, ResumePolicy::kWarn) << key;
  }
  for (const char* key :
       {"run.notes", "log.every", "checkpoint.keep", "train.max_steps", "train.max_epochs",
        "train.eval_every", "parallel.backward_prefetch", "parallel.limit_all_gathers",
        "parallel.activation_checkpointing", "parallel.activation_offload"}) {
    EXPECT_EQ(find_field(key)->resume, ResumePolicy::kFree) << key;
  }
}

TEST(Format, NumbersAreShortAndExact) {
  EXPECT_EQ(format_number(0), "0");
  EXPECT_EQ(format_number(0.1), "0.1");
  EXPECT_EQ(format_number(65536), "65536");
  EXPECT_EQ(format_number(9e15), "9e+15");
  EXPECT_EQ(format_number(1.5), "1.5");
  EXPECT_EQ(format_number(3e-4), "3e-4");
  EXPECT_EQ(format_number(1e-10), "1e-10");
  EXPECT_EQ(format_number(1e100), "1e+100");
  EXPECT_EQ(format_value(*find_field("optim.eps"), Config()), "1.0e-8");
  EXPECT_EQ(format_value(*find_field("optim.betas"), Config()), "[0.9, 0.95]");
  EXPECT_EQ(format_interval({0.5, Interval::Unit::kEpochs}), "0.5 epochs");
}

TEST(Format, QuotesWhatYamlWouldTakeForSomethingElse) {
  for (const char* plain : {"abc", "/a/b c.txt", "hub:a/b", "bpe:512", "end-of-text", "a*"}) {
    EXPECT_EQ(format_text(plain), plain);
  }
  for (const char* quoted : {"", "1", "true", "No", "null", "~", "a: b", "a #b", "-a", "*a", "a,b",
                             "[a]", "a ", "a:", "é", "y"}) {
    EXPECT_EQ(format_text(quoted), "\"" + std::string(quoted) + "\"");
  }
  EXPECT_EQ(format_text("a\"\\\n\x01\u2028"), "\"a\\\"\\\\\\n\\u0001\\u2028\"");
  EXPECT_EQ(format_text("${x}"), "\"$${x}\"");
}

TEST(Utf8, IsStrict) {
  EXPECT_TRUE(is_utf8("aé€😀"));
  for (const char* wrong : {"\x80", "\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe2\x82"}) {
    EXPECT_FALSE(is_utf8(wrong));
  }
}

TEST(Interval, CountsSteps) {
  EXPECT_EQ((Interval{5, Interval::Unit::kSteps}.in_steps(7)), 5);
  EXPECT_EQ((Interval{0.5, Interval::Unit::kEpochs}.in_steps(100)), 50);
  EXPECT_EQ((Interval{0.001, Interval::Unit::kEpochs}.in_steps(10)), 1);
  EXPECT_EQ(Interval{}.in_steps(10), 0);
}

TEST(Describe, SchemaHoldsEveryField) {
  const auto schema = nlohmann::json::parse(config_json_schema());
  for (const Field& field : fields()) {
    const auto& group = schema["properties"][std::string(field.group())]["properties"];
    ASSERT_TRUE(group.contains(std::string(field.name()))) << field.key;
    EXPECT_TRUE(group[std::string(field.name())].contains("default")) << field.key;
  }
  EXPECT_EQ(schema["properties"]["optim"]["properties"]["lr"]["anyOf"][0]["maximum"], 1000);
  EXPECT_EQ(schema["properties"]["model"]["additionalProperties"], false);
  const auto& parallel = schema["properties"]["parallel"]["properties"];
  EXPECT_EQ(parallel["sharded_data_parallel_degree"], parallel["shard_degree"]);
  const auto choices_of = [&](const char* key) { return parallel[key]["anyOf"][0]["enum"].dump(); };
  EXPECT_NE(choices_of("strategy").find("\"mics\""), std::string::npos);
  EXPECT_EQ(choices_of("hierarchical_gather"), R"(["auto",true,false])");
  EXPECT_EQ(parallel["limit_all_gathers"]["anyOf"].back()["enum"].dump(), "[true,false]");
}

TEST(Describe, ReferenceHoldsEveryFieldAndPreset) {
  const std::string page = config_markdown_reference();
  for (const Field& field : fields()) {
    EXPECT_NE(page.find("| `" + std::string(field.key) + "` |"), page.npos) << field.key;
  }
  for (const ModelPreset& preset : model_presets()) {
    EXPECT_NE(page.find("| `" + std::string(preset.name) + "` |"), page.npos) << preset.name;
    EXPECT_EQ(preset.n_embd % preset.n_head, 0) << preset.name;
  }
}

}  // namespace
}  // namespace tessera
