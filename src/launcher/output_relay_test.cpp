#include "launcher/output_relay.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/temporary_directory.h"

namespace tessera {
namespace {

std::string content(const Path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

void put(int descriptor, const std::string& text) {
  ASSERT_EQ(::write(descriptor, text.data(), text.size()), static_cast<ssize_t>(text.size()));
}

class OutputRelayTest : public ::testing::Test {
 protected:
  OutputRelayTest()
      : console_(::open((folder_.path() / "console").c_str(),
                        O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC, 0600)) {}
  ~OutputRelayTest() override { ::close(console_); }
  std::string shown() const { return content(folder_.path() / "console"); }

  const TemporaryDirectory folder_;
  const int console_;
};

TEST_F(OutputRelayTest, LinesOfManyWritersStayWhole) {
  constexpr int kWriters = 4, kLines = 500;
  OutputRelay relay;
  std::vector<std::thread> writers;
  for (int i = 0; i < kWriters; ++i) {
    const int pipe = relay.add({console_, "[rank " + std::to_string(i) + "] ", {}});
    writers.emplace_back([pipe, i] {
      for (int line = 0; line < kLines; ++line) {
        put(pipe, "first half of " + std::to_string(i));
        put(pipe, " and second half\n");
      }
      ::close(pipe);
    });
  }
  for (std::thread& writer : writers) writer.join();
  relay.finish();
  std::istringstream lines(shown());
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    const std::string rank = line.substr(6, 1);
    ASSERT_EQ(line, "[rank " + rank + "] first half of " + rank + " and second half");
  }
  EXPECT_EQ(count, kWriters * kLines);
}

TEST_F(OutputRelayTest, FilesGetTheBytesAndTheConsoleTheLines) {
  OutputRelay relay;
  const Path file = folder_.path() / "log";
  const int pipe = relay.add({console_, "> ", file});
  put(pipe, "1 %\r2 %\r\nend\n\nno newline");
  ::close(pipe);
  relay.finish();
  EXPECT_EQ(content(file), "1 %\r2 %\r\nend\n\nno newline");
  EXPECT_EQ(shown(), "> 1 %\n> 2 %\n> end\n> \n> no newline\n");
}

TEST_F(OutputRelayTest, DoesNotWaitForAPipeThatStaysOpen) {
  OutputRelay relay;
  const int pipe = relay.add({console_, "", {}});
  put(pipe, "said\n");
  const auto start = std::chrono::steady_clock::now();
  relay.finish();
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(3));
  EXPECT_EQ(shown(), "said\n");
  ::close(pipe);
}

TEST_F(OutputRelayTest, NamesALogFileThatCannotBeWritten) {
  OutputRelay relay;
  try {
    relay.add({console_, "", folder_.path() / "none" / "log"});
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kIo);
    EXPECT_NE(std::string(error.what()).find("--log-dir"), std::string::npos);
  }
}

}  // namespace
}  // namespace tessera
