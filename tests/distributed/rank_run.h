// Training of a tiny run on several ranks, and the measure by which runs are compared.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "integration/tiny_run.h"

namespace tessera::testing {

using Tensors = std::map<std::string, std::vector<float>>;

// All f32 tensors of a safetensors file: u64 header size, JSON header, data.
inline Tensors read_tensors(const Path& path) {
  const std::string bytes = read_file(path);
  std::uint64_t size = 0;
  std::memcpy(&size, bytes.data(), sizeof size);
  const Json header = Json::parse(bytes.substr(8, size));
  Tensors tensors;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    const std::size_t begin = entry.at("data_offsets")[0], end = entry.at("data_offsets")[1];
    std::vector<float>& values = tensors[name];
    values.resize((end - begin) / sizeof(float));
    std::memcpy(values.data(), bytes.data() + 8 + size + begin, end - begin);
  }
  return tensors;
}

class RankRun : public TinyRun {
 protected:
  void SetUp() override {
    TinyRun::SetUp();
    if (IsSkipped()) return;
    // 3 blocks and a bit: the last row of an epoch is short.
    folder_.write("short.txt", sample_text(40).substr(0, 1100));
  }

  // `tessera train tiny.yaml --nproc N …`; one rank: without the launcher.
  RunOptions rank_command(int ranks, const std::string& name,
                          const std::vector<std::string>& more = {}) const {
    RunOptions options = train_command(name, more);
    if (ranks > 1) {
      options.arguments.insert(options.arguments.end(), {"--nproc", std::to_string(ranks)});
    }
    return options;
  }
  std::vector<Json> trained_by(int ranks, const std::string& name,
                               const std::vector<std::string>& more = {}) const {
    const RunResult result = run_program(rank_command(ranks, name, more));
    EXPECT_EQ(result.exit_code, 0) << result.describe();
    return parse_json_lines(result.out);
  }

  static void expect_equal_losses(const std::map<std::int64_t, double>& got,
                                  const std::map<std::int64_t, double>& expected,
                                  const std::string& what) {
    EXPECT_EQ(got.size(), expected.size()) << what;
    for (const auto& [step, loss] : expected) {
      ASSERT_TRUE(got.contains(step)) << what << " lacks step " << step;
      EXPECT_NEAR(got.at(step), loss, 1e-5 * loss) << what << " step " << step;
    }
  }

  // ‖a − b‖ / ‖b‖ ≤ 1e-5. The key third of c_attn.bias is left out: its true gradient is zero, for
  // softmax ignores a constant, so Adam steps on rounding noise.
  static void expect_equal_tensors(const Tensors& got, const Tensors& expected,
                                   const std::string& what) {
    ASSERT_EQ(got.size(), expected.size()) << what;
    for (const auto& [name, b] : expected) {
      const std::vector<float>& a = got.at(name);
      ASSERT_EQ(a.size(), b.size()) << name;
      const bool attention_bias = name.ends_with("attn.c_attn.bias");
      double difference = 0, norm = 0;
      for (std::size_t i = 0; i < b.size(); ++i) {
        if (attention_bias && i >= b.size() / 3 && i < 2 * b.size() / 3) continue;
        difference += std::pow(static_cast<double>(a[i]) - b[i], 2);
        norm += std::pow(static_cast<double>(b[i]), 2);
      }
      EXPECT_LE(std::sqrt(difference), 1e-5 * std::sqrt(norm) + 1e-30) << what << ' ' << name;
    }
  }
};

}  // namespace tessera::testing
