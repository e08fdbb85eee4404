#include "optim/lr_schedule.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace tessera {
namespace {

// Values of PyTorch's and Hugging Face transformers' own schedulers
// (tests/reference/lr_schedules.py).
TEST(LrScheduleTest, AgreesWithTheReferences) {
  std::ifstream file(std::string(TESSERA_SOURCE_DIR) + "/tests/reference/lr_schedules.json");
  const auto cases = nlohmann::json::parse(file).at("cases");
  ASSERT_GT(cases.size(), 20u);
  for (const auto& reference : cases) {
    OptimConfig config;
    config.schedule = reference.at("schedule").get<std::string>();
    config.lr = reference.at("peak").get<double>();
    config.min_lr = reference.at("min").get<double>();
    config.warmup = reference.value("warmup", 0.0);
    config.wsd_decay = reference.value("wsd_decay", config.wsd_decay);
    config.exponential_gamma = reference.value("exponential_gamma", config.exponential_gamma);
    config.plateau_factor = reference.value("plateau_factor", config.plateau_factor);
    config.plateau_patience = reference.value("plateau_patience", config.plateau_patience);
    LrSchedule schedule(config, reference.value("decay_steps", std::int64_t{0}));
    const auto& rates = reference.at("lr");
    for (std::size_t i = 0; i < rates.size(); ++i) {
      if (config.schedule == "plateau")
        schedule.observe(reference.at("evaluation_losses")[i].get<double>());
      EXPECT_NEAR(schedule.at(static_cast<std::int64_t>(i) + 1), rates[i].get<double>(), 1e-12)
          << config.schedule << " warm-up " << config.warmup << " step " << i + 1;
    }
  }
}

TEST(LrScheduleTest, WarmupMayBeAFractionAndNamesAreChecked) {
  OptimConfig config;
  config.warmup = 0.1;
  EXPECT_EQ(LrSchedule(config, 200).warmup_steps(), 20);
  config.decay_steps = 50;
  EXPECT_EQ(LrSchedule(config, 200).warmup_steps(), 5);
  config.schedule = "cosin";
  EXPECT_THROW(LrSchedule(config, 200), Error);
}

}  // namespace
}  // namespace tessera
