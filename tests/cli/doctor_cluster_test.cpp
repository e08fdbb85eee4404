// `tessera doctor --cluster` with two processes as a launcher starts them; over real hosts it is
// tried by tests/cluster.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "support/json_lines.h"
#include "support/run_folder.h"
#include "support/run_program.h"

namespace tessera::testing {
namespace {

int free_port() {
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ::bind(socket, reinterpret_cast<sockaddr*>(&address), size);
  ::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size);
  ::close(socket);
  return ntohs(address.sin_port);
}

class DoctorClusterTest : public ::testing::Test {
 protected:
  // Each rank a node of its own: local rank 0 of one.
  RunOptions rank(int number, int world_size, std::vector<std::string> more = {}) const {
    RunOptions options;
    options.arguments = {"doctor", "--cluster"};
    options.arguments.insert(options.arguments.end(), more.begin(), more.end());
    options.environment = {{"RANK", std::to_string(number)},
                           {"WORLD_SIZE", std::to_string(world_size)},
                           {"LOCAL_RANK", "0"},
                           {"LOCAL_WORLD_SIZE", "1"},
                           {"MASTER_ADDR", "127.0.0.1"},
                           {"MASTER_PORT", std::to_string(port_)}};
    options.working_folder = folder_.path();
    options.timeout = std::chrono::seconds(60);
    return options;
  }
  const RunFolder folder_;
  const int port_ = free_port();
  const int fine_ = engine_is_built() ? 0 : 1;
};

TEST_F(DoctorClusterTest, TwoNodesAgree) {
  BackgroundProgram other(rank(1, 2));
  const RunResult first = run_program(rank(0, 2, {"--json"}));
  const RunResult second = other.wait();
  EXPECT_EQ(first.exit_code, fine_) << first.describe();
  EXPECT_EQ(second.exit_code, fine_) << second.describe();
  EXPECT_EQ(second.out, "") << "rank 0 speaks";
  const std::vector<Json> lines = parse_json_lines(first.out);
  ASSERT_EQ(lines.size(), 1u) << first.describe();
  EXPECT_EQ(lines[0]["ranks"], 2);
  ASSERT_EQ(lines[0]["reports"].size(), 2u);
  EXPECT_EQ(lines[0]["reports"][0]["program_hash"], lines[0]["reports"][1]["program_hash"]);
  EXPECT_EQ(lines[0]["reports"][1]["address"], "127.0.0.1");
  for (const Json& report : lines[0]["reports"]) {
    EXPECT_TRUE(report["findings"]["unreached"].empty());
    EXPECT_TRUE(report["findings"]["unseen"].empty());
    EXPECT_LT(std::abs(report["findings"]["clock_ahead_s"].get<double>()), 0.5);
  }
  EXPECT_TRUE(folder_.list(folder_.path()).empty()) << "marks are left in the folder";
}

TEST_F(DoctorClusterTest, NoticesAnUnsharedFolder) {
  std::filesystem::create_directories(folder_ / "one");
  std::filesystem::create_directories(folder_ / "two");
  BackgroundProgram other(rank(1, 2, {"--folder", "one"}));
  const RunResult first = run_program(rank(0, 2, {"--folder", "two"}));
  EXPECT_EQ(first.exit_code, 4) << first.describe();
  EXPECT_NE(first.out.find("the folder is not shared"), std::string::npos) << first.describe();
  EXPECT_EQ(other.wait().exit_code, 4);
}

TEST_F(DoctorClusterTest, NamesARankThatDoesNotCome) {
  const RunResult first = run_program(rank(0, 2, {"--timeout", "1"}));
  EXPECT_EQ(first.exit_code, 5) << first.describe();
  EXPECT_NE(first.out.find("rank 1 did not report"), std::string::npos) << first.describe();
  const RunResult lonely = run_program(rank(1, 2, {"--timeout", "1"}));
  EXPECT_EQ(lonely.exit_code, 5) << lonely.describe();
  EXPECT_NE(lonely.last_error_line().find("127.0.0.1"), std::string::npos) << lonely.describe();
}

TEST_F(DoctorClusterTest, OneProcessSaysThatNothingWasCompared) {
  RunOptions options = rank(0, 1);
  options.environment.clear();
  options.unset = {"RANK", "WORLD_SIZE"};
  const RunResult result = run_program(options);
  EXPECT_EQ(result.exit_code, fine_) << result.describe();
  if (fine_ == 0) {
    EXPECT_NE(result.out.find("nothing was compared"), std::string::npos) << result.describe();
  }
}

TEST_F(DoctorClusterTest, RefusesOptionsThatDoNotFit) {
  RunOptions options = rank(0, 1);
  options.environment.clear();
  options.arguments = {"doctor", "--folder", "."};
  EXPECT_EQ(run_program(options).exit_code, 2);
  options.arguments = {"doctor", "--cluster", "--measure"};
  EXPECT_EQ(run_program(options).exit_code, 2);
}

}  // namespace
}  // namespace tessera::testing
