// For tests: a file system in memory whose n-th operation fails, on which the process "dies", and
// which then shows what a disk may hold after the machine lost power: only what was flushed is
// certain. Not for programs.
#pragma once

#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/file_system.h"

namespace tessera {

enum class Fault {
  kNone,
  kFailOnce,  // the operation fails, a write after half of its bytes; later ones succeed
  kDiskFull,  // from the operation on, whatever needs space fails
  kKilled,    // the operation is done by half, and nothing after it happens: the process is dead
};

// What a disk keeps of what was not flushed.
enum class Survival { kOnlyFlushed, kEverything, kSomething };

// Thread-safe. Paths are taken as text: "/a/b" with "/" always there.
class FaultyFileSystem final : public FileSystem {
 public:
  FaultyFileSystem() : root_(make_folder()) {}

  // The n-th operation from now that changes something (the first is 0) meets the fault.
  void arm(Fault fault, std::int64_t n) {
    const std::lock_guard lock(mutex_);
    fault_ = fault;
    countdown_ = n;
  }
  std::int64_t operations() const {
    return operations_;
  }  // that change something, since construction
  bool tripped() const { return tripped_; }

  // The disk after a crash, as a new file system without faults. kSomething draws from `seed`.
  std::unique_ptr<FaultyFileSystem> after_crash(Survival survival, std::uint32_t seed = 0) const {
    const std::lock_guard lock(mutex_);
    std::mt19937 random(seed);
    std::map<const Node*, NodePtr> copies;
    auto survivor = std::make_unique<FaultyFileSystem>();
    survivor->root_ = survive(root_, survival, random, copies);
    return survivor;
  }

  // Writes the present content into a folder of the real file system.
  void export_to(const Path& folder) const {
    const std::lock_guard lock(mutex_);
    export_node(*root_, folder);
  }

  std::unique_ptr<WritableFile> create(const Path& path) override {
    const std::lock_guard lock(mutex_);
    if (step(Need::kSpace) != Outcome::kGo) fail("create", path);
    Node& parent = folder_of(path);
    NodePtr& entry = parent.entries[path.filename().string()];
    if (entry == nullptr || entry->folder) {
      entry = std::make_shared<Node>();
      parent.remember();
    }
    entry->data.clear();
    return std::make_unique<File>(*this, path, entry);
  }

  std::string read(const Path& path) override {
    const std::lock_guard lock(mutex_);
    const NodePtr node = alive(path);
    if (node == nullptr || node->folder) fail("read", path);
    return node->data;
  }

  void rename(const Path& from, const Path& to) override {
    const std::lock_guard lock(mutex_);
    if (step(Need::kNothing) != Outcome::kGo) fail("rename", from);
    const NodePtr node = find(from);
    const NodePtr target = find(to);
    if (node == nullptr) fail("rename", from);
    if (target != nullptr && target->folder && !target->entries.empty())
      fail("rename onto a full folder", to);
    folder_of(from).entries.erase(from.filename().string());
    folder_of(to).entries[to.filename().string()] = node;
    folder_of(from).remember();
    if (&folder_of(from) != &folder_of(to)) folder_of(to).remember();
  }

  void sync_directory(const Path& path) override {
    const std::lock_guard lock(mutex_);
    if (step(Need::kSpace) != Outcome::kGo) fail("flush the folder", path);
    const NodePtr node = find(path);
    if (node == nullptr || !node->folder) fail("flush the folder", path);
    node->history = {node->entries};
  }

  void create_directories(const Path& path) override {
    const std::lock_guard lock(mutex_);
    if (step(Need::kSpace) != Outcome::kGo) fail("create the folder", path);
    NodePtr node = root_;
    for (const Path& part : path.relative_path()) {
      NodePtr& entry = node->entries[part.string()];
      if (entry == nullptr) {
        entry = make_folder();
        node->remember();
      }
      if (!entry->folder) fail("create the folder", path);
      node = entry;
    }
  }

  void remove_all(const Path& path) override {
    const std::lock_guard lock(mutex_);
    const Outcome outcome = step(Need::kNothing);
    if (outcome == Outcome::kFail) fail("remove", path);
    const NodePtr node = find(path);
    if (node != nullptr && outcome == Outcome::kHalf) {
      remove_half(*node);
      fail("remove", path);
    }
    if (node == nullptr) return;
    empty(*node);
    Node& parent = folder_of(path);
    parent.entries.erase(path.filename().string());
    parent.remember();
  }

  bool exists(const Path& path) override {
    const std::lock_guard lock(mutex_);
    return alive(path) != nullptr;
  }

  bool is_directory(const Path& path) override {
    const std::lock_guard lock(mutex_);
    const NodePtr node = alive(path);
    return node != nullptr && node->folder;
  }

  std::uint64_t file_size(const Path& path) override { return read(path).size(); }

  std::vector<std::string> list(const Path& path) override {
    const std::lock_guard lock(mutex_);
    std::vector<std::string> names;
    if (const NodePtr node = alive(path)) {
      for (const auto& [name, entry] : node->entries) names.push_back(name);
    }
    return names;
  }

  std::uint64_t free_bytes(const Path&) override {
    return std::numeric_limits<std::uint64_t>::max();
  }
  std::unique_ptr<FileLock> try_lock(const Path&) override { return std::make_unique<FileLock>(); }

 private:
  struct Node;
  using NodePtr = std::shared_ptr<Node>;
  using Entries = std::map<std::string, NodePtr>;

  struct Node {
    bool folder = false;
    std::string data, flushed;
    Entries entries;
    std::vector<Entries> history;  // of a folder: as flushed, then after each change since
    void remember() { history.push_back(entries); }
  };

  enum class Outcome { kGo, kHalf, kFail };
  enum class Need { kNothing, kSpace };

  class File final : public WritableFile {
   public:
    File(FaultyFileSystem& owner, Path path, NodePtr node)
        : owner_(owner), path_(std::move(path)), node_(std::move(node)) {}
    void write(std::span<const std::byte> bytes) override {
      write_at(position_, bytes);
      position_ += bytes.size();
    }
    void write_at(std::uint64_t offset, std::span<const std::byte> bytes) override {
      const std::lock_guard lock(owner_.mutex_);
      const Outcome outcome = owner_.step(Need::kSpace);
      if (outcome == Outcome::kHalf) bytes = bytes.first(bytes.size() / 2);
      if (outcome != Outcome::kFail) {
        if (node_->data.size() < offset + bytes.size()) node_->data.resize(offset + bytes.size());
        if (!bytes.empty()) std::memcpy(node_->data.data() + offset, bytes.data(), bytes.size());
      }
      if (outcome != Outcome::kGo) owner_.fail("write", path_);
    }
    void sync() override {
      const std::lock_guard lock(owner_.mutex_);
      if (owner_.step(Need::kSpace) != Outcome::kGo) owner_.fail("flush", path_);
      node_->flushed = node_->data;
    }
    void close() override {
      const std::lock_guard lock(owner_.mutex_);
      if (owner_.step(Need::kSpace) != Outcome::kGo) owner_.fail("close", path_);
    }

   private:
    FaultyFileSystem& owner_;
    Path path_;
    NodePtr node_;
    std::uint64_t position_ = 0;
  };

  static NodePtr make_folder() {
    auto node = std::make_shared<Node>();
    node->folder = true;
    node->history = {Entries{}};
    return node;
  }

  [[noreturn]] static void fail(const std::string& action, const Path& path) {
    throw Error(ErrorKind::kIo, "cannot " + action + ": No space left on device", path.string());
  }

  Outcome step(Need need) {
    ++operations_;
    if (fault_ == Fault::kNone) return Outcome::kGo;
    const bool now = countdown_-- == 0;
    tripped_ = tripped_ || now;
    if (!tripped_) return Outcome::kGo;
    if (fault_ == Fault::kDiskFull) return need == Need::kSpace ? Outcome::kHalf : Outcome::kGo;
    if (now) return Outcome::kHalf;
    return fault_ == Fault::kKilled ? Outcome::kFail : Outcome::kGo;
  }

  NodePtr find(const Path& path) const {
    NodePtr node = root_;
    for (const Path& part : path.relative_path()) {
      if (!node->folder) return nullptr;
      const auto entry = node->entries.find(part.string());
      if (entry == node->entries.end()) return nullptr;
      node = entry->second;
    }
    return node;
  }

  // A dead process reads nothing.
  NodePtr alive(const Path& path) const {
    return fault_ == Fault::kKilled && tripped_ ? nullptr : find(path);
  }

  Node& folder_of(const Path& path) const {
    const NodePtr node = find(path.parent_path());
    if (node == nullptr || !node->folder) fail("open", path);
    return *node;
  }

  // As a real removal does it: from the inside, name by name.
  static void empty(Node& node) {
    while (!node.entries.empty()) {
      empty(*node.entries.begin()->second);
      node.entries.erase(node.entries.begin());
      node.remember();
    }
  }

  static void remove_half(Node& node) {
    std::size_t left = (node.entries.size() + 1) / 2;
    for (auto entry = node.entries.begin(); left > 0; --left) entry = node.entries.erase(entry);
    if (node.folder) node.remember();
  }

  static NodePtr survive(const NodePtr& node, Survival survival, std::mt19937& random,
                         std::map<const Node*, NodePtr>& copies) {
    NodePtr& copy = copies[node.get()];
    if (copy != nullptr) return copy;
    const NodePtr result = copy = std::make_shared<Node>();
    result->folder = node->folder;
    if (!node->folder) {
      result->data = node->data;
      const bool lose = survival == Survival::kOnlyFlushed ||
                        (survival == Survival::kSomething && random() % 2 == 0);
      if (lose) result->data = node->flushed;
      if (lose && survival == Survival::kSomething && node->data != node->flushed &&
          random() % 2 == 0) {
        result->data.assign(node->data.size(),
                            '\0');  // the length reached the disk, the content did not
      }
      result->flushed = result->data;
      return result;
    }
    std::size_t moment = node->history.size() - 1;
    if (survival == Survival::kOnlyFlushed) moment = 0;
    if (survival == Survival::kSomething) moment = random() % node->history.size();
    for (const auto& [name, entry] : node->history[moment]) {
      result->entries[name] = survive(entry, survival, random, copies);
    }
    result->history = {result->entries};
    return result;
  }

  static void export_node(const Node& node, const Path& path) {
    if (!node.folder) {
      const auto files = make_posix_file_system();
      const auto file = files->create(path);
      file->write(node.data);
      file->close();
      return;
    }
    std::filesystem::create_directories(path);
    for (const auto& [name, entry] : node.entries) export_node(*entry, path / name);
  }

  mutable std::mutex mutex_;
  NodePtr root_;
  Fault fault_ = Fault::kNone;
  std::int64_t countdown_ = 0, operations_ = 0;
  bool tripped_ = false;
};

}  // namespace tessera
