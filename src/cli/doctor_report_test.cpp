#include "cli/doctor_report.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/temporary_directory.h"

namespace tessera::cli {
namespace {

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

// A machine with nothing to complain of.
DoctorReport healthy() {
  DoctorReport report;
  report.version = "9.9.9";
  report.machine.processors = report.machine.allowed_processors = 4;
  report.machine.memory_bytes = report.machine.available_memory_bytes = 8 * kGiB;
  report.machine.cpu.avx2 = true;
  report.folders = {{"working folder", "/w", 9 * kGiB, true}, {"cache", "/c", 9 * kGiB, true}};
  report.engine_candidates = {"/p/libtessera_engine.so"};
  report.engine = "/p/libtessera_engine.so";
  EngineFacts facts;
  facts.torch_version = "2.13.0+cpu";
  facts.devices = {"cpu"};
  facts.threads = 4;
  report.probe.facts = facts;
  return report;
}

std::vector<Problem> problems_of(const DoctorReport& report) { return find_problems(report); }

TEST(DoctorReportTest, AHealthyMachineHasNoProblems) {
  EXPECT_TRUE(problems_of(healthy()).empty());
  EXPECT_TRUE(healthy().training_possible());
}

TEST(DoctorReportTest, AMissingEnginePreventsTrainingAndSaysHowToBuildIt) {
  DoctorReport report = healthy();
  report.engine.clear();
  report.probe = {};
  report.problems = problems_of(report);
  ASSERT_EQ(report.problems.size(), 1u);
  EXPECT_FALSE(report.training_possible());
  EXPECT_NE(report.problems[0].what.find("/p/libtessera_engine.so"), std::string::npos);
  EXPECT_NE(report.problems[0].remedy.find("make build"), std::string::npos);
}

TEST(DoctorReportTest, ATorchThatMovedAwayIsNamed) {
  DoctorReport report = healthy();
  report.probe = {};
  report.probe.failure = "libtorch_cpu.so: cannot open shared object file";
  report.torch_folder = "/gone/torch/lib";
  const auto problems = problems_of(report);
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_TRUE(problems[0].prevents_training);
  EXPECT_NE(problems[0].what.find("libtorch_cpu.so"), std::string::npos);
  EXPECT_NE(problems[0].what.find("/gone/torch/lib"), std::string::npos);
}

TEST(DoctorReportTest, VersionsCompareByNumber) {
  DoctorReport report = healthy();
  for (const char* old : {"2.9.1+cpu", "2.12.9", "1.99.0"}) {
    report.probe.facts->torch_version = old;
    EXPECT_EQ(problems_of(report).size(), 1u) << old;
  }
  for (const char* fine : {"2.13.0", "2.14.1+cu130", "3.0.0a0"}) {
    report.probe.facts->torch_version = fine;
    EXPECT_TRUE(problems_of(report).empty()) << fine;
  }
}

TEST(DoctorReportTest, WhatSlowsTrainingIsNotedAndDoesNotPreventIt) {
  DoctorReport report = healthy();
  report.machine.gpus = {"NVIDIA H200"};
  report.machine.cpu = {};
  report.machine.memory_limit_bytes = kGiB;
  report.machine.memory_limit_left_bytes = kGiB / 2;
  report.thread_limit = "1";
  report.folders[0].writable = false;
  report.folders[1].free_bytes = 1000;
  report.problems = problems_of(report);
  EXPECT_EQ(report.problems.size(), 6u);
  EXPECT_TRUE(report.training_possible());
  const std::string text = report_text(report);
  for (const char* part : {"AVX2", "512.0MiB", "OMP_NUM_THREADS=1 leaves 3", "NVIDIA H200",
                           "/w cannot be written", "TESSERA_CACHE", "Training is possible here."})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
}

TEST(DoctorReportTest, WhatPreventsTrainingComesFirst) {
  DoctorReport report = healthy();
  report.thread_limit = "1";
  report.engine.clear();
  EXPECT_TRUE(problems_of(report).front().prevents_training);
}

TEST(DoctorReportTest, JsonHoldsTheSame) {
  DoctorReport report = healthy();
  report.probe.facts->gemm_gflops_f32 = 55;
  auto json = nlohmann::json::parse(report_json(report));
  EXPECT_EQ(json["training_possible"], true);
  EXPECT_EQ(json["machine"]["usable_processors"], 4);
  EXPECT_EQ(json["engine"]["torch_version"], "2.13.0+cpu");
  EXPECT_TRUE(json["engine"]["gemm_gflops_f32"].is_null()) << "not measured";
  report.measured = true;
  json = nlohmann::json::parse(report_json(report));
  EXPECT_EQ(json["engine"]["gemm_gflops_f32"], 55);
  report.probe = {};
  report.probe.failure = "bad \xff byte";
  report.torch_version = "2.13.0";
  json = nlohmann::json::parse(report_json(report));
  EXPECT_EQ(json["engine"]["works"], false);
  EXPECT_EQ(json["engine"]["torch_version"], "2.13.0");
}

TEST(LinkedTorchFolderTest, FindsTheEntryOfARunPath) {
  const TemporaryDirectory folder;
  const Path file = folder.path() / "engine.so";
  const auto put = [&](std::string_view text) { std::ofstream(file, std::ios::binary) << text; };
  using namespace std::string_view_literals;
  put("\x7f"
      "ELF\0/a/torch/library\0/opt/x:/venv/site-packages/torch/lib:/y\0end"sv);
  EXPECT_EQ(linked_torch_folder(file), "/venv/site-packages/torch/lib");
  put("\0relative/torch/lib\0"sv);
  EXPECT_TRUE(linked_torch_folder(file).empty());
  put("nothing");
  EXPECT_TRUE(linked_torch_folder(file).empty());
  put("\0$ORIGIN:$ORIGIN/torch\0"sv);
  EXPECT_EQ(linked_torch_folder(file), folder.path() / "torch") << "as make install lays it out";
  std::filesystem::create_directories(folder.path() / "package/torch/lib");
  std::filesystem::create_directory_symlink("package/torch/lib", folder.path() / "torch");
  EXPECT_EQ(linked_torch_folder(file),
            std::filesystem::canonical(folder.path() / "package/torch/lib"));
  EXPECT_THROW(linked_torch_folder(folder.path() / "none"), Error);
}

}  // namespace
}  // namespace tessera::cli
