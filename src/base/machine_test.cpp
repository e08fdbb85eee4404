#include "base/machine.h"

#include <gtest/gtest.h>

#include <fstream>

#include "base/temporary_directory.h"

namespace tessera {
namespace {

// A machine made of files.
class MachineTest : public ::testing::Test {
 protected:
  void put(const Path& name, std::string_view text) {
    std::filesystem::create_directories((root_.path() / name).parent_path());
    std::ofstream(root_.path() / name) << text;
  }
  MachineFacts facts() const { return machine_facts(root_.path()); }
  void put_memory() {
    put("proc/meminfo",
        "MemTotal:       8388608 kB\nMemFree: 1 kB\nMemAvailable:   4194304 kB\nSwapTotal: 1024 "
        "kB\n");
  }

 private:
  TemporaryDirectory root_;
};

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

TEST_F(MachineTest, ReadsProcessorsAndFeatures) {
  put("proc/cpuinfo",
      "processor\t: 0\nmodel name\t: Xeon Q\nphysical id\t: 0\ncore id\t: 0\nflags\t: fma avx2 "
      "f16c avx512f "
      "avx512_bf16 amx_tile amx_bf16\n\n"
      "processor\t: 1\nmodel name\t: Xeon Q\nphysical id\t: 0\ncore id\t: 0\nflags\t: fma avx2\n\n"
      "processor\t: 2\nphysical id\t: 1\ncore id\t: 0\n\nprocessor\t: 3\nphysical id\t: 1\ncore "
      "id\t: 0\n");
  put("etc/os-release", "NAME=x\nPRETTY_NAME=\"Some Linux 1\"\n");
  put("proc/sys/kernel/osrelease", "6.1.0\n");
  const MachineFacts found = facts();
  EXPECT_EQ(found.processors, 4);
  EXPECT_EQ(found.cores, 2);
  EXPECT_EQ(found.cpu_model, "Xeon Q");
  EXPECT_EQ(found.system, "Some Linux 1");
  EXPECT_EQ(found.kernel, "Linux 6.1.0");
  EXPECT_TRUE(found.cpu.fast_bf16());
  const std::vector<std::string> expected = {"avx2",        "fma",      "f16c",    "avx512f",
                                             "avx512_bf16", "amx_tile", "amx_bf16"};
  EXPECT_EQ(found.cpu.names(), expected);
}

TEST_F(MachineTest, Avx512AloneHasNoFastBf16) {
  put("proc/cpuinfo", "processor: 0\nflags: avx2 avx512f avx512bw\n");
  EXPECT_TRUE(facts().cpu.avx512f);
  EXPECT_FALSE(facts().cpu.fast_bf16());
}

TEST_F(MachineTest, LimitOfAContainerWithControlGroupsVersion2) {
  put_memory();
  put("proc/cpuinfo", "processor: 0\nprocessor: 1\nprocessor: 2\nprocessor: 3\n");
  put("proc/self/cgroup", "0::/\n");
  put("sys/fs/cgroup/memory.max", "2147483648\n");
  put("sys/fs/cgroup/memory.current", "1073741824\n");
  put("sys/fs/cgroup/cpu.max", "50000 100000\n");
  const MachineFacts found = facts();
  EXPECT_EQ(found.memory_bytes, 8 * kGiB);
  EXPECT_EQ(found.memory_limit_bytes, 2 * kGiB);
  EXPECT_EQ(found.usable_memory_bytes(), kGiB);
  EXPECT_DOUBLE_EQ(found.processor_quota, 0.5);
  EXPECT_EQ(found.usable_processors(), 1);
}

TEST_F(MachineTest, TheNarrowestGroupAboveCounts) {
  put_memory();
  put("proc/self/cgroup", "0::/user/job\n");
  put("sys/fs/cgroup/user/job/memory.max", "max\n");
  put("sys/fs/cgroup/user/memory.max", "3221225472\n");
  put("sys/fs/cgroup/user/memory.current", "0\n");
  EXPECT_EQ(facts().memory_limit_bytes, 3 * kGiB);
}

TEST_F(MachineTest, ControlGroupsVersion1) {
  put_memory();
  put("proc/self/cgroup", "4:memory:/api/x\n1:cpu,cpuacct:/api\n0::/\n");
  put("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  put("sys/fs/cgroup/memory/api/x/memory.limit_in_bytes", "1073741824\n");
  put("sys/fs/cgroup/memory/api/x/memory.usage_in_bytes", "1000\n");
  put("sys/fs/cgroup/cpu/api/cpu.cfs_quota_us", "150000\n");
  put("sys/fs/cgroup/cpu/api/cpu.cfs_period_us", "100000\n");
  const MachineFacts found = facts();
  EXPECT_EQ(found.memory_limit_bytes, kGiB);
  EXPECT_EQ(found.usable_memory_bytes(), kGiB - 1000);
  EXPECT_DOUBLE_EQ(found.processor_quota, 1.5);
}

TEST_F(MachineTest, NoLimitMeansWhatIsAvailable) {
  put_memory();
  put("proc/self/cgroup", "0::/\n1:cpu:/\n");
  put("sys/fs/cgroup/cpu.max", "max 100000\n");
  put("sys/fs/cgroup/memory.max", "max\n");
  put("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  put("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(facts().memory_limit_bytes, 0u);
  EXPECT_EQ(facts().usable_memory_bytes(), 4 * kGiB);
  EXPECT_EQ(facts().processor_quota, 0);
}

TEST_F(MachineTest, FindsGpusByTheirDriver) {
  put("proc/driver/nvidia/gpus/0000:01:00.0/information", "Model: \t\t NVIDIA H200\nIRQ: 1\n");
  put("dev/nvidia0", "");
  EXPECT_EQ(facts().gpus, std::vector<std::string>{"NVIDIA H200"});
}

TEST_F(MachineTest, FindsGpusByTheirDeviceFiles) {
  put("dev/nvidia0", "");
  put("dev/nvidiactl", "");
  EXPECT_EQ(facts().gpus, std::vector<std::string>{"/dev/nvidia0"});
}

TEST_F(MachineTest, AnEmptyRootIsNotAnError) {
  EXPECT_EQ(facts().processors, 0);
  EXPECT_EQ(facts().usable_processors(), 1);
  EXPECT_TRUE(facts().gpus.empty());
}

TEST(ThisMachineTest, HasProcessorsAndMemory) {
  const MachineFacts found = machine_facts();
  EXPECT_GE(found.processors, 1);
  EXPECT_GE(found.allowed_processors, 1);
  EXPECT_GT(found.memory_bytes, std::uint64_t{64} << 20);
  EXPECT_LE(found.usable_memory_bytes(), found.memory_bytes);
}

}  // namespace
}  // namespace tessera
