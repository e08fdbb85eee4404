// Disks that are full, read-only or in the way: exit 4 with the place named; what was saved stays
// usable.
#include <sched.h>
#include <sys/mount.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "integration/tiny_run.h"

namespace tessera::testing {
namespace {

class StorageFaults : public TinyRun {
 protected:
  // A file system of `kilobytes` at folder_/disk that ends with this process; an empty text, or why
  // there is none.
  std::string mount_small(int kilobytes) {
    if (unshare(CLONE_NEWNS) != 0)
      return std::string("needs to mount: unshare: ") + std::strerror(errno);
    if (mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0)
      return std::string("needs to mount privately: ") + std::strerror(errno);
    std::filesystem::create_directory(folder_ / "disk");
    const std::string size = "size=" + std::to_string(kilobytes) + "k";
    if (mount("tmpfs", (folder_ / "disk").c_str(), "tmpfs", 0, size.c_str()) != 0)
      return std::string("needs to mount a tmpfs: ") + std::strerror(errno);
    mounted_ = true;
    return "";
  }
  bool remount(unsigned long flags) {
    return mount(nullptr, (folder_ / "disk").c_str(), nullptr, MS_REMOUNT | flags, nullptr) == 0;
  }
  void TearDown() override {
    if (mounted_) umount2((folder_ / "disk").c_str(), MNT_DETACH);
  }
  std::vector<std::string> saved() const {
    std::vector<std::string> names;
    for (const std::string& name : folder_.list(folder_ / "disk/run/checkpoints"))
      if (name.starts_with("step_") || name.ends_with(".partial")) names.push_back(name);
    return names;
  }

  const std::vector<std::string> on_disk_ = {"run.dir=disk/run", "checkpoint.every=1",
                                             "checkpoint.keep=0", "train.eval_every=0"};
  bool mounted_ = false;
};

TEST_F(StorageFaults, FullDiskKeepsOlderCheckpoints) {
  const std::string reason = mount_small(1800);  // four checkpoints
  if (!reason.empty()) GTEST_SKIP() << reason;
  const RunResult full = train("whatever", on_disk_);
  expect_error(full, 4, {"disk/run/checkpoints", "Free space"});
  expect_failed_event(full, 4);
  const std::vector<std::string> kept = saved();
  ASSERT_GE(kept.size(), 2U);
  for (const std::string& name : kept) EXPECT_EQ(name.find("partial"), std::string::npos);
  const std::string newest = (folder_ / "disk/run/checkpoints" / kept.back()).string();
  const RunResult usable =
      run_program(command({"generate", newest, "--prompt", "the", "--max-new-tokens", "4"}));
  EXPECT_EQ(usable.exit_code, 0) << usable.describe();

  // Named before training starts, now that it can be foreseen.
  const RunResult again = train("whatever", on_disk_);
  expect_error(again, 4, {"not enough space for a checkpoint", "Free space"});
  EXPECT_TRUE(events(parse_json_lines(again.out), "step").empty());

  for (std::size_t i = 0; i + 1 < kept.size(); ++i)
    std::filesystem::remove_all(folder_ / "disk/run/checkpoints" / kept[i]);
  std::vector<std::string> fewer = on_disk_;
  fewer.push_back("checkpoint.keep=1");
  const std::vector<Json> lines = trained("whatever", fewer);
  EXPECT_EQ(lines.front().at("resumed_from_step"), static_cast<int>(kept.size()));
  trained("reference", {"checkpoint.every=0", "train.eval_every=0"});
  expect_same_state(checkpoint("reference", 40), folder_ / "disk/run/checkpoints/step_00000040");
}

TEST_F(StorageFaults, WriteThatFailsHalfway) {
  trained("halfway", {"train.max_steps=3"});
  RunOptions options = train_command("halfway");
  options.file_size_bytes = std::size_t{200} << 10;  // less than the optimizer's state
  const RunResult result = run_program(options);
  expect_error(result, 4, {"cannot write", "optimizer.safetensors", "limit on the size of files"});
  expect_failed_event(result, 4);
  EXPECT_EQ(checkpoints("halfway"), std::vector<std::string>{"step_00000003"});
  for (const std::string& name : folder_.list(run("halfway") / "checkpoints"))
    EXPECT_EQ(name.find(".partial"), std::string::npos) << name;
  const std::vector<Json> lines = trained("halfway", {"train.max_steps=6"});
  EXPECT_EQ(lines.front().at("resumed_from_step"), 3);
  EXPECT_EQ(checkpoints("halfway").back(), "step_00000006");
}

TEST_F(StorageFaults, ReadOnlyDisk) {
  const std::string reason = mount_small(4000);
  if (!reason.empty()) GTEST_SKIP() << reason;
  std::vector<std::string> settings = on_disk_;
  settings.push_back("train.max_steps=2");
  trained("whatever", settings);
  ASSERT_TRUE(remount(MS_RDONLY));
  for (const char* place : {"run.dir=disk/run", "run.dir=disk/other"}) {
    const RunResult result = train("whatever", {place});
    expect_error(result, 4, {"Read-only", "disk/", "writable"});
    expect_failed_event(result, 4);
  }
  // Reading is enough to use the model.
  const RunResult usable = run_program(command(
      {"generate", (folder_ / "disk/run").string(), "--prompt", "the", "--max-new-tokens", "4"}));
  EXPECT_EQ(usable.exit_code, 0) << usable.describe();
}

TEST_F(StorageFaults, AFileInTheWay) {
  folder_.write("file", "mine");
  for (const char* place : {"run.dir=file", "run.dir=file/below"}) {
    const RunResult result = train("whatever", {place});
    expect_error(result, 4, {"cannot create the folder", "file", "stands where a folder must be"});
    expect_failed_event(result, 4);
  }
  EXPECT_EQ(folder_.read("file"), "mine");
}

}  // namespace
}  // namespace tessera::testing
