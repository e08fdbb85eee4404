#include "inference/sampling.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "base/error.h"

namespace tessera {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

const std::vector<float> kLogits = {1.5, -0.25, 3.0,  0.0, 2.5, -4.0,
                                    2.5, 0.75,  -1.0, 1.0, 2.0, -0.5};
const std::vector<std::int64_t> kHistory = {2, 1, 2, 11, 6};

struct ReferenceCase {
  SamplingOptions options;
  std::vector<double> probabilities;
};

// Made by tests/reference/sampling.py with transformers 5.24: penalty, temperature, top-k, top-p,
// min-p, then the distribution.
const std::vector<ReferenceCase> kReference = {
    {{1, 1, 0, 1, 0},
     {0.0701051741861121, 0.0121824525746011, 0.314189592924045, 0.0156425787433808,
      0.190565621071065, 0.000286503823552351, 0.190565621071065, 0.0331153394596022,
      0.0057545831265952, 0.0425209375483717, 0.115583891866781, 0.00948770360482955}},
    {{1, 0.7, 0, 1, 0},
     {0.0475525844251219, 0.00390335382709896, 0.405326648732906, 0.00557882955038176,
      0.198424280283365, 1.84018013833373e-05, 0.198424280283365, 0.0162876567740081,
      0.00133697228388099, 0.0232789710956963, 0.0971369514663126, 0.00273106947647926}},
    {{1.3, 1, 0, 1, 0},
     {0.0925730300463031, 0.01492440581402, 0.207615986527734, 0.020655835019657, 0.251639585380259,
      0.000378324815165307, 0.14132677611957, 0.0437284030797626, 0.00759885704396093,
      0.0561483809855817, 0.152627123730502, 0.0107832914374842}},
    {{0.8, 1, 0, 1, 0},
     {0.0461816775233949, 0.00843663159664075, 0.438159556821867, 0.0103045251017183,
      0.1255348148196, 0.000188733960682968, 0.23452991030372, 0.0218146798115233,
      0.00379082293595721, 0.0280106033349008, 0.0761407140494352, 0.00690732974055918}},
    {{1, 1, 3, 1, 0},
     {0, 0, 0.451862761877606, 0, 0.274068619061197, 0, 0.274068619061197, 0, 0, 0, 0, 0}},
    {{1, 1, 2, 1, 0},
     {0, 0, 0.451862761877606, 0, 0.274068619061197, 0, 0.274068619061197, 0, 0, 0, 0, 0}},
    {{1, 1, 0, 0.8, 0},
     {0, 0, 0.38745561900026, 0, 0.235003712201594, 0, 0.235003712201594, 0, 0, 0,
      0.142536956596551, 0}},
    {{1, 1, 0, 0.05, 0}, {0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0}},
    {{1, 1, 0, 1, 0.3},
     {0, 0, 0.38745561900026, 0, 0.235003712201594, 0, 0.235003712201594, 0, 0, 0,
      0.142536956596551, 0}},
    {{1, 2, 0, 0.9, 0.2},
     {0.10376754437924, 0, 0.219675893174708, 0.0490163172248219, 0.171083757626373, 0,
      0.171083757626373, 0.0713183207383182, 0, 0.080814244819949, 0.133240164410218, 0}},
    {{1.2, 0.8, 7, 0.85, 0},
     {0, 0, 0.319561638221986, 0, 0.319561638221986, 0, 0.18982770458146, 0, 0, 0,
      0.171049018974569, 0}},
    {{1.2, 1.4, 9, 0.95, 0.15},
     {0.103530027461672, 0, 0.211483589681355, 0.0354609864739235, 0.211483589681355, 0,
      0.157044366986594, 0.0605910629009204, 0, 0.0724371170086251, 0.147969259805555, 0}},
    {{1, 1, 100, 1, 1}, {0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0}},
};

TEST(Sampling, EveryFilterAndTheirOrderAgreeWithTransformers) {
  for (std::size_t index = 0; index < kReference.size(); ++index) {
    SCOPED_TRACE(index);
    const ReferenceCase& reference = kReference[index];
    TokenSampler sampler(reference.options);
    const std::vector<double> actual = sampler.probabilities(kLogits, kHistory);
    ASSERT_EQ(actual.size(), reference.probabilities.size());
    for (std::size_t id = 0; id < actual.size(); ++id) {
      EXPECT_NEAR(actual[id], reference.probabilities[id], 1e-13) << id;
    }
  }
}

TEST(Sampling, GreedyTakesTheLowestOfTheLargestAndHeedsThePenalty) {
  TokenSampler greedy({.temperature = 0});
  EXPECT_EQ(greedy.choose(kLogits, kHistory, 0.999), 2);
  EXPECT_EQ(greedy.choose(std::vector<float>{1, 3, 3}, {}, 0.999), 1);
  TokenSampler penalised({.repetition_penalty = 1.5, .temperature = 0});
  EXPECT_EQ(penalised.choose(kLogits, kHistory, 0.0), 4);  // 3 / 1.5 and 2.5 / 1.5 are below 2.5
}

TEST(Sampling, TinyTemperatureIsGreedyWithoutOverflow) {
  TokenSampler cold({.temperature = 1e-300});
  EXPECT_EQ(cold.choose(kLogits, {}, 0.5), 2);
}

TEST(Sampling, DrawsFollowTheDistribution) {
  TokenSampler sampler({.temperature = 0.9, .top_k = 6});
  const std::vector<double> expected = sampler.probabilities(kLogits, kHistory);
  std::vector<double> counts(kLogits.size(), 0);
  constexpr int kDraws = 40000;
  for (int draw = 0; draw < kDraws; ++draw) {
    const double uniform = uniform_draw({.seed = 5, .sample = 0, .position = draw});
    ++counts[static_cast<std::size_t>(sampler.choose(kLogits, kHistory, uniform))];
  }
  double chi_square = 0;
  for (std::size_t id = 0; id < counts.size(); ++id) {
    if (expected[id] == 0) {
      EXPECT_EQ(counts[id], 0) << id;
      continue;
    }
    chi_square += std::pow(counts[id] - kDraws * expected[id], 2) / (kDraws * expected[id]);
  }
  EXPECT_LT(chi_square, 20.5);  // 5 degrees of freedom: 0.1 %
}

TEST(Sampling, DrawDependsOnSeedSampleAndPosition) {
  const double base = uniform_draw({1, 0, 7});
  EXPECT_EQ(base, uniform_draw({1, 0, 7}));
  EXPECT_NE(base, uniform_draw({2, 0, 7}));
  EXPECT_NE(base, uniform_draw({1, 1, 7}));
  EXPECT_NE(base, uniform_draw({1, 0, 8}));
  EXPECT_GE(base, 0.0);
  EXPECT_LT(base, 1.0);
}

TEST(Sampling, EndsOfTheUniformRangeStayAmongTheKeptTokens) {
  TokenSampler sampler({.top_k = 2});
  EXPECT_EQ(sampler.choose(kLogits, {}, 0.0), 2);
  EXPECT_EQ(sampler.choose(kLogits, {}, std::nextafter(1.0, 0.0)), 6);
}

TEST(Sampling, MinusInfinityIsNeverChosen) {
  const std::vector<float> logits = {-kInfinity, 1, -kInfinity};
  TokenSampler sampler({});
  EXPECT_EQ(sampler.choose(logits, {}, 0.0), 1);
  EXPECT_EQ(sampler.choose(logits, {}, std::nextafter(1.0, 0.0)), 1);
}

TEST(Sampling, HistoryMayHoldIdsBeyondTheLogits) {
  TokenSampler sampler({.repetition_penalty = 2});
  const std::vector<std::int64_t> history = {-1, 12, 50000};
  EXPECT_EQ(sampler.probabilities(kLogits, history), TokenSampler({}).probabilities(kLogits, {}));
}

ErrorKind kind_of(const std::vector<float>& logits) {
  try {
    TokenSampler({}).choose(logits, {}, 0.5);
  } catch (const Error& error) {
    return error.kind();
  }
  return ErrorKind::kInternal;
}

TEST(Sampling, LogitsThatAreNotFiniteAreAnError) {
  EXPECT_EQ(kind_of({1, NAN, 2}), ErrorKind::kNumeric);
  EXPECT_EQ(kind_of({1, kInfinity}), ErrorKind::kNumeric);
  EXPECT_EQ(kind_of({-kInfinity, -kInfinity}), ErrorKind::kNumeric);
}

TEST(Sampling, OptionsOutOfRangeNameTheOption) {
  const std::vector<std::pair<SamplingOptions, std::string>> cases = {
      {{.repetition_penalty = 0}, "repetition penalty"},
      {{.temperature = -1}, "temperature"},
      {{.temperature = NAN}, "temperature"},
      {{.temperature = INFINITY}, "temperature"},
      {{.top_k = -1}, "top-k"},
      {{.top_p = 0}, "top-p"},
      {{.top_p = 1.5}, "top-p"},
      {{.top_p = NAN}, "top-p"},
      {{.min_p = -0.1}, "min-p"},
      {{.min_p = 1.1}, "min-p"},
  };
  for (const auto& [options, name] : cases) {
    try {
      validate(options);
      ADD_FAILURE() << name;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kUsage);
      EXPECT_NE(std::string(error.what()).find(name), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace tessera
