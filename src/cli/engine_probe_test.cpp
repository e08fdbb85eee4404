#include "cli/engine_probe.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <thread>

#include "base/error.h"

namespace tessera::cli {
namespace {

EngineFacts plausible_facts(bool measure) {
  EngineFacts facts;
  facts.torch_version = "2.13.0";
  facts.blas = "mkl";
  facts.threads = 3;
  facts.devices = {"cpu", "x:0"};
  facts.gemm_gflops_f32 = measure ? 12.5 : 0;
  return facts;
}

const EngineApi kEngine{.facts = plausible_facts};

EngineProbe probe(const std::function<const EngineApi&()>& load, int seconds = 20) {
  return probe_engine(load, true, std::chrono::seconds(seconds));
}

TEST(EngineProbeTest, SendsTheFactsOfAWorkingEngine) {
  const EngineProbe found = probe([]() -> const EngineApi& { return kEngine; });
  ASSERT_TRUE(found.facts) << found.failure;
  EXPECT_EQ(found.facts->torch_version, "2.13.0");
  EXPECT_EQ(found.facts->threads, 3);
  EXPECT_EQ(found.facts->devices, (std::vector<std::string>{"cpu", "x:0"}));
  EXPECT_EQ(found.facts->gemm_gflops_f32, 12.5);
  EXPECT_GE(found.load_seconds, 0);
}

TEST(EngineProbeTest, AnErrorIsAFailureWithItsReason) {
  const EngineProbe found = probe([]() -> const EngineApi& {
    throw Error(ErrorKind::kIo, "libtorch_cpu.so is not there", "/x", "Call doctor.");
  });
  EXPECT_FALSE(found.facts);
  EXPECT_EQ(found.failure, "libtorch_cpu.so is not there");
}

TEST(EngineProbeTest, ACrashIsAFailure) {
  const EngineProbe found = probe([]() -> const EngineApi& {
    signal(SIGILL, SIG_DFL);
    raise(SIGILL);
    return kEngine;
  });
  EXPECT_FALSE(found.facts);
  EXPECT_NE(found.failure.find("Illegal instruction"), std::string::npos) << found.failure;
}

TEST(EngineProbeTest, AnExitIsAFailure) {
  const EngineProbe found = probe([]() -> const EngineApi& { _exit(9); });
  EXPECT_NE(found.failure.find("exit code 9"), std::string::npos) << found.failure;
}

TEST(EngineProbeTest, AHangIsAFailure) {
  const EngineProbe found = probe(
      []() -> const EngineApi& {
        std::this_thread::sleep_for(std::chrono::seconds(60));
        return kEngine;
      },
      1);
  EXPECT_NE(found.failure.find("did not answer within 1 s"), std::string::npos) << found.failure;
}

}  // namespace
}  // namespace tessera::cli
