#include "launcher/rank_failure.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <fstream>

#include "base/error.h"
#include "base/temporary_directory.h"

namespace tessera {
namespace {

RankFailure failure(int rank, int code, int signal, double time) {
  RankFailure f;
  f.rank = rank;
  f.host = "h";
  f.process = 100 + rank;
  f.exit_code = code;
  f.signal = signal;
  f.time = time;
  return f;
}

NodeEnd node(std::vector<RankFailure> failures) { return {std::move(failures), 0, 0}; }

TEST(RankFailure, TheCauseIsTheEarliestThatIsNoConsequence) {
  std::vector<RankFailure> failures = {failure(0, 5, 0, 1.0), failure(2, 1, 0, 3.0),
                                       failure(1, 0, SIGKILL, 2.0)};
  order_failures(failures);
  EXPECT_EQ(failures[0].rank, 1);
  EXPECT_EQ(failures[1].rank, 2);
  EXPECT_EQ(failures[2].rank, 0);
}

TEST(RankFailure, CodesOfTheLauncher) {
  EXPECT_EQ(failure(0, 7, 0, 0).launcher_code(), 7);
  EXPECT_EQ(failure(0, 0, SIGSEGV, 0).launcher_code(), 5);
  RankFailure lost = failure(0, 0, 0, 0);
  lost.process = 0;
  EXPECT_EQ(lost.launcher_code(), 5);
  EXPECT_NE(lost.cause().find("is gone"), std::string::npos);
  EXPECT_EQ(failure(3, 7, 0, 0).cause(), "rank 3 (host h) exited with code 7 (pid 103)");
  EXPECT_NE(failure(3, 0, SIGKILL, 0).cause().find("was killed by SIGKILL"), std::string::npos);
}

TEST(RankFailure, SummaryHasTheCauseLast) {
  RankFailure cause = failure(1, 7, 0, 1);
  cause.message = "out of luck";
  const std::string text = failure_summary("job", {cause, failure(0, 0, SIGTERM, 2)});
  const std::size_t other = text.find("rank      : 0"), root = text.find("rank      : 1");
  ASSERT_NE(other, std::string::npos) << text;
  ASSERT_NE(root, std::string::npos) << text;
  EXPECT_LT(other, root);
  EXPECT_NE(text.find("exitcode  : -15 (pid: 100) (SIGTERM)"), std::string::npos) << text;
  EXPECT_NE(text.find("message   : out of luck"), std::string::npos) << text;
}

TEST(Verdict, RestartsWithinTheBudgetAndWithGrowingDelay) {
  const std::vector<NodeEnd> nodes = {node({}), node({failure(1, 7, 0, 1)})};
  EXPECT_EQ(judge(nodes, {0, 0}).action, AfterAttempt::kEnd);
  EXPECT_EQ(judge(nodes, {0, 0}).exit_code, 7);
  const double expected[] = {1, 2, 4, 8, 16, 30, 30};
  for (int used = 0; used < 7; ++used) {
    const Verdict verdict = judge(nodes, {used, 7});
    EXPECT_EQ(verdict.action, AfterAttempt::kRestart);
    EXPECT_EQ(verdict.delay_s, expected[used]);
  }
  EXPECT_EQ(judge(nodes, {7, 7}).action, AfterAttempt::kEnd);
  EXPECT_NE(judge(nodes, {7, 7}).remark.find("all 7 restarts"), std::string::npos);
}

TEST(Verdict, WhatWouldFailAgainIsNotRestarted) {
  for (const int code : {2, 3}) {
    const Verdict verdict = judge({node({failure(0, code, 0, 1)})}, {0, 5});
    EXPECT_EQ(verdict.action, AfterAttempt::kEnd);
    EXPECT_EQ(verdict.exit_code, code);
    EXPECT_NE(verdict.remark.find("not restarted"), std::string::npos);
  }
}

TEST(Verdict, AStopIsNoFailure) {
  const Verdict verdict = judge({{{}, SIGINT, 130}, {{}, SIGINT, 0}}, {0, 5});
  EXPECT_EQ(verdict.action, AfterAttempt::kEnd);
  EXPECT_EQ(verdict.exit_code, 130);
  EXPECT_TRUE(verdict.failures.empty());
  // A rank that fails while all are asked to stop is one, and is not restarted.
  const Verdict failed = judge({{{failure(0, 4, 0, 1)}, SIGINT, 130}}, {0, 5});
  EXPECT_EQ(failed.action, AfterAttempt::kEnd);
  EXPECT_EQ(failed.exit_code, 4);
}

TEST(Verdict, SurvivesItsJson) {
  RankFailure f = failure(1, 7, 0, 1.25);
  f.message = "line \"one\"\n\xff two";
  const Verdict verdict = judge({node({f})}, {1, 3});
  const Verdict back = verdict_from_json(to_json(verdict));
  EXPECT_EQ(back.action, AfterAttempt::kRestart);
  EXPECT_EQ(back.delay_s, 2);
  ASSERT_EQ(back.failures.size(), 1u);
  EXPECT_EQ(back.failures[0].time, 1.25);
  EXPECT_EQ(back.failures[0].message, "line \"one\"\n\xef\xbf\xbd two");
  EXPECT_THROW(verdict_from_json("{}"), Error);
  EXPECT_THROW(node_end_from_json("no"), Error);
}

// The forms that torch.distributed.elastic and Tessera write.
TEST(ErrorFile, BothFormsAndDamage) {
  const TemporaryDirectory folder;
  const auto read = [&](const std::string& text) {
    std::ofstream(folder.path() / "e") << text;
    return read_error_file((folder.path() / "e").string());
  };
  EXPECT_EQ(read(R"({"message":{"message":"E","extraInfo":{"timestamp":"12"}}})")->message, "E");
  EXPECT_EQ(read(R"({"message":{"message":"E","extraInfo":{"timestamp":"12"}}})")->time, 12);
  EXPECT_EQ(read(R"({"message":"plain","timestamp":3})")->message, "plain");
  for (const char* bad : {"", "{", "[]", "{\"message\":5}", "{\"message\":{}}", "{\"a\":1}"})
    EXPECT_FALSE(read(bad).has_value()) << bad;
  EXPECT_FALSE(read_error_file((folder.path() / "none").string()).has_value());
}

}  // namespace
}  // namespace tessera
