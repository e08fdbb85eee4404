// How a global batch is cut into micro-batches, and how many threads compute it, changes the time a
// run takes and nothing else.
#include <algorithm>
#include <cmath>

#include "integration/tiny_run.h"

namespace tessera::testing {
namespace {

class Batches : public TinyRun {
 protected:
  // Losses and gradient norms of a run of 15 steps, over the end of an epoch.
  std::vector<Json> curve(const std::string& name, std::vector<std::string> more) const {
    for (const char* setting :
         {"train.max_steps=15", "train.global_batch_size=12", "checkpoint.every=0"})
      more.push_back(setting);
    return trained(name, more);
  }

  // At every step, and of the evaluations too: they are of the same text however batches are cut.
  static void expect_same_curve(const std::vector<Json>& one, const std::vector<Json>& other,
                                const std::string& what) {
    for (const char* event : {"step", "eval"}) {
      const auto a = values(one, event, "loss"), b = values(other, event, "loss");
      ASSERT_EQ(a.size(), event == std::string("step") ? 15U : 3U) << what;
      ASSERT_EQ(a.size(), b.size()) << what;
      for (const auto& [step, loss] : a)
        EXPECT_NEAR(b.at(step), loss, 1e-5) << what << ", " << event << " " << step;
    }
    const auto a = values(one, "step", "grad_norm"), b = values(other, "step", "grad_norm");
    for (const auto& [step, norm] : a)
      EXPECT_NEAR(b.at(step), norm, 1e-4 * norm) << what << ", step " << step;
    EXPECT_EQ(values(one, "step", "tokens"), values(other, "step", "tokens")) << what;
    EXPECT_EQ(values(one, "step", "epoch"), values(other, "step", "epoch")) << what;
  }
};

TEST_F(Batches, AccumulationChangesNothing) {
  for (const char* dropout : {"0", "0.1"}) {
    const std::string setting = std::string("model.dropout=") + dropout;
    const std::vector<Json> whole =
        curve(std::string("rows-12-") + dropout, {setting, "train.batch_size=12"});
    for (const char* rows : {"1", "3", "4", "5"}) {
      const std::string name = std::string("rows-") + rows + "-" + dropout;
      expect_same_curve(whole, curve(name, {setting, std::string("train.batch_size=") + rows}),
                        name);
    }
  }
}

TEST_F(Batches, AccumulationMayBeGivenInstead) {
  std::vector<std::string> settings = {"train.batch_size=0", "train.gradient_accumulation=3"};
  const std::vector<Json> by_count = curve("count", settings);
  expect_same_curve(curve("rows", {"train.batch_size=4"}), by_count, "3 micro-batches");
  expect_error(train("contradiction", {"train.gradient_accumulation=2"}), 2,
               {"train.global_batch_size: 12", "4 × 2"});
}

TEST_F(Batches, DropoutChangesSomething) {
  const auto with = values(curve("with", {"model.dropout=0.1"}), "step", "loss");
  const auto without = values(curve("without", {"model.dropout=0"}), "step", "loss");
  EXPECT_GT(std::abs(with.at(1) - without.at(1)), 1e-4);
}

TEST_F(Batches, ThreadsChangeNothing) {
  expect_same_curve(curve("one", {"run.threads=1"}), curve("two", {"run.threads=2"}), "2 threads");
}

TEST_F(Batches, ResumedWithOtherMicroBatches) {
  const std::vector<Json> whole = curve("whole", {"optim.decay_steps=15"});
  trained("cut", {"optim.decay_steps=15", "train.max_steps=7", "train.batch_size=5"});
  trained("cut", {"optim.decay_steps=15", "train.max_steps=15", "train.batch_size=3"});
  const auto a = values(whole, "step", "loss"), b = values(metrics("cut"), "step", "loss");
  ASSERT_EQ(b.size(), 15U);
  for (const auto& [step, loss] : a) EXPECT_NEAR(b.at(step), loss, 1e-5) << step;
}

}  // namespace
}  // namespace tessera::testing
